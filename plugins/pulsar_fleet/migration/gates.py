"""Gates of a migration: what must hold before anything changes (pure).

Each gate is a function from facts to findings; all of them are evaluated, so that one run tells everything.
A gate that cannot be evaluated is a blocker, never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.change.findings import Finding, Severity
from pulsar_fleet.migration.client_versions import behaviour
from pulsar_fleet.migration.facts import ClusterFacts, NamespaceFacts

ClusterGate = Callable[[ClusterFacts, ClusterFacts, str], Iterator[Finding]]
NamespaceGate = Callable[[ClusterFacts, ClusterFacts, NamespaceFacts], Iterator[Finding]]


def check(
    blue: ClusterFacts, green: ClusterFacts, green_service_url: str, namespaces: tuple[NamespaceFacts, ...]
) -> tuple[Finding, ...]:
    """Every finding of every gate for these clusters and namespaces; an empty answer means: go."""
    found = [finding for gate in CLUSTER_GATES for finding in gate(blue, green, green_service_url)]
    for facts in namespaces:
        if facts.blue is None:
            found.append(_missing_on_blue(blue, facts))
            continue
        found += [finding for gate in NAMESPACE_GATES for finding in gate(blue, green, facts)]
    return tuple(found)


def migration_check_runs_on_every_broker(blue: ClusterFacts, _green: ClusterFacts, _url: str) -> Iterator[Finding]:
    """A broker whose check is off keeps its topics for ever: a silent split brain."""
    for broker, settings in blue.brokers.items():
        seconds = settings.get("clusterMigrationCheckDurationSeconds")
        if seconds is None or not seconds.isdigit() or int(seconds) == 0:
            yield _blocker(
                "migration-check-off",
                f"broker {broker} of {blue.name}",
                f"clusterMigrationCheckDurationSeconds = {seconds}",
                "Its topics would stop loading and never be handed over. Not a dynamic setting.",
                "set it to 1–10 on that broker and restart it.",
            )


def resources_are_not_created_by_the_broker(blue: ClusterFacts, _green: ClusterFacts, _url: str) -> Iterator[Finding]:
    """The broker's own resource creation copies blue's cluster list, which makes green unusable."""
    for broker, settings in blue.brokers.items():
        if settings.get("clusterMigrationAutoResourceCreation") != "false":
            yield _blocker(
                "auto-resource-creation-on",
                f"broker {broker} of {blue.name}",
                f"clusterMigrationAutoResourceCreation = {settings.get('clusterMigrationAutoResourceCreation')}",
                "The broker would create namespaces on green whose cluster list lacks green: topics there are deleted.",
                "set it to false on that broker and restart it.",
            )


def no_other_redirect_is_stored(blue: ClusterFacts, _green: ClusterFacts, green_url: str) -> Iterator[Finding]:
    """A cluster has one redirect address; replacing it would send an earlier wave's clients elsewhere."""
    stored = (blue.redirect or {}).get("migratedClusterUrl") or {}
    address = stored.get("brokerServiceUrl") or stored.get("brokerServiceUrlTls")
    known = {stored.get("brokerServiceUrl"), stored.get("brokerServiceUrlTls")}
    if address and green_url not in known:
        yield _blocker(
            "redirect-to-another-cluster",
            f"cluster {blue.name}",
            f"its clients are redirected to {address}, not to {green_url}",
            "A cluster has one redirect address: this run would move an earlier migration's clients.",
            f"finish that migration first, or give the connection of {address} as target.",
        )


def green_does_not_redirect(_blue: ClusterFacts, green: ClusterFacts, _url: str) -> Iterator[Finding]:
    """Clients would be sent on from green, or back and forth."""
    if (green.redirect or {}).get("migrated"):
        yield _blocker(
            "green-is-migrated",
            f"cluster {green.name}",
            "migrated = true",
            "Green redirects its own clients: they would be sent on, or back and forth until they time out.",
            f"clear the flag of {green.name} first.",
        )


def no_flag_is_left_over(blue: ClusterFacts, green: ClusterFacts, facts: NamespaceFacts) -> Iterator[Finding]:
    """A flag that is already set acts as soon as a URL is stored; on green it closes the namespace."""
    for cluster, policies in ((blue, facts.blue), (green, facts.green)):
        if policies and policies.get("migrated"):
            yield _blocker(
                "migrated-flag-left",
                str(facts.namespace),
                f"migrated = true on {cluster.name}",
                "The namespace is already flagged: its topics stop loading as soon as a redirect is stored.",
                f"clear it: POST {{false}} to /admin/v2/namespaces/{facts.namespace}/migration on {cluster.name}.",
            )


def green_serves_the_namespace(_blue: ClusterFacts, green: ClusterFacts, facts: NamespaceFacts) -> Iterator[Finding]:
    """A cluster list without the serving cluster deletes the topics there."""
    if facts.green is None:
        return
    for key in ("replication_clusters", "allowed_clusters"):
        listed = facts.green.get(key) or []
        if listed and green.name not in listed:
            yield _blocker(
                "green-not-in-list",
                str(facts.namespace),
                f"{key} on {green.name} = {listed}",
                f"{green.name} deletes topics of a namespace whose list does not name it.",
                f"add {green.name} to {key} of the namespace on {green.name}.",
            )


def partition_counts_agree(blue: ClusterFacts, green: ClusterFacts, facts: NamespaceFacts) -> Iterator[Finding]:
    """Keys would change their partition, and replication of the surplus would never start."""
    for topic, count in facts.topics.items():
        there = facts.green_topics.get(topic)
        if there is not None and there != count:
            yield _blocker(
                "partitions-differ",
                str(topic),
                f"{blue.name} {count or 'not partitioned'}, {green.name} {there or 'not partitioned'}",
                "Producers redirected to green would lose the order of keys, and some partitions would never move.",
                f"make them equal on {green.name} (partitions can be added, never removed).",
            )


def green_is_not_in_use(_blue: ClusterFacts, green: ClusterFacts, facts: NamespaceFacts) -> Iterator[Finding]:
    """Applications that already use green's namespace would mix with those that arrive."""
    for partition in facts.green_partitions:
        if partition.producers or partition.consumers:
            yield _blocker(
                "green-in-use",
                str(partition.topic),
                f"{partition.producers} producers, {partition.consumers} consumers on {green.name}",
                "Applications already use this topic on green; their messages would mix with those that arrive.",
                "stop them, or choose another target.",
            )


def no_transactions_are_used(blue: ClusterFacts, _green: ClusterFacts, facts: NamespaceFacts) -> Iterator[Finding]:
    """A transaction that continues on green makes everything behind it unreadable there."""
    for partition in facts.partitions:
        if partition.transactions:
            yield _blocker(
                "transactions-in-use",
                str(partition.topic),
                f"{partition.transactions} transactions counted on {blue.name}",
                "A client's next transaction would hide every later message of green's topic from its consumers.",
                "stop the transactional applications for the switch and start them against green.",
            )


def topics_have_no_publish_rate_of_their_own(
    _blue: ClusterFacts, _green: ClusterFacts, facts: NamespaceFacts
) -> Iterator[Finding]:
    """The namespace's throttle, which makes the switch quiet, has no effect on them."""
    for topic in facts.topic_publish_rates:
        yield _blocker(
            "topic-publish-rate",
            str(topic),
            "has a publish rate of its own",
            "It beats the namespace's rate, so writes cannot be quieted: topics may stay closed for ever.",
            f"remove it for the switch: DELETE /admin/v2/{topic.path}/publishRate.",
        )


def messages_in_flight_can_be_lost(
    _blue: ClusterFacts, _green: ClusterFacts, facts: NamespaceFacts
) -> Iterator[Finding]:
    """Non-persistent topics keep nothing."""
    for topic in facts.topics:
        if not topic.persistent:
            yield _warning(
                "non-persistent-topic",
                str(topic),
                "not persistent",
                "Messages in flight at the switch are lost, as on any reconnect.",
                "stop its producers for the switch if that matters.",
            )


def clients_follow_a_redirect(_blue: ClusterFacts, _green: ClusterFacts, facts: NamespaceFacts) -> Iterator[Finding]:
    """Each client version that is connected, with what it does."""
    clients: dict[str, set[str]] = {}
    for partition in facts.partitions:
        for version, seen in partition.client_versions.items():
            clients.setdefault(version, set()).update(seen)
    for version, names in sorted(clients.items()):
        expected = behaviour(version)
        if expected.severity:
            yield Finding(
                id="client-may-hang" if expected.severity is Severity.WARNING else "client-cannot-follow",
                severity=expected.severity,
                resource=str(facts.namespace),
                evidence=f"{len(names)} clients {version} ({min(names)}{', …' if len(names) > 1 else ''})",
                consequence=expected.consequence,
                remedy=expected.remedy,
            )


CLUSTER_GATES: tuple[ClusterGate, ...] = (
    migration_check_runs_on_every_broker,
    resources_are_not_created_by_the_broker,
    no_other_redirect_is_stored,
    green_does_not_redirect,
)

NAMESPACE_GATES: tuple[NamespaceGate, ...] = (
    no_flag_is_left_over,
    green_serves_the_namespace,
    partition_counts_agree,
    green_is_not_in_use,
    no_transactions_are_used,
    topics_have_no_publish_rate_of_their_own,
    messages_in_flight_can_be_lost,
    clients_follow_a_redirect,
)


def _missing_on_blue(blue: ClusterFacts, facts: NamespaceFacts) -> Finding:
    return _blocker(
        "namespace-missing",
        str(facts.namespace),
        f"not on {blue.name}",
        "The broker would accept the flag all the same, and a namespace created later would be born closed.",
        "correct 'namespaces' in the run's configuration.",
    )


def _blocker(id: str, resource: str, evidence: str, consequence: str, remedy: str) -> Finding:
    return Finding(
        id=id,
        severity=Severity.BLOCKER,
        resource=resource,
        evidence=evidence,
        consequence=consequence,
        remedy=remedy,
    )


def _warning(id: str, resource: str, evidence: str, consequence: str, remedy: str) -> Finding:
    return Finding(
        id=id,
        severity=Severity.WARNING,
        resource=resource,
        evidence=evidence,
        consequence=consequence,
        remedy=remedy,
    )
