"""Causes in lists of clusters, tenants, namespaces and replicated subscriptions (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS
from pulsar_fleet.cluster.text import counted, duration, listed
from pulsar_fleet.replication.doctor.causes.clusters import storing_peer
from pulsar_fleet.replication.doctor.causes.pair import (
    Assessed,
    ClusterPair,
    Explained,
    NamespacePair,
    diagnosis,
    lag_text,
    on,
)
from pulsar_fleet.replication.doctor.facts import FleetFacts, NamespaceFacts
from pulsar_fleet.replication.doctor.model import OWN_CLUSTER, RemedyCall, State

_Rows = Mapping[tuple[str, str, TopicName], Assessed]


class _Answer(StrEnum):
    """Whether a cluster of the list answers."""

    YES = "yes"
    NEVER = "never"
    """It does not replicate back."""
    HELD = "held"
    """It would, and a replicator to it or from it does not work."""


@dataclass
class _Topic:
    """A topic with replicated subscriptions on one cluster, over its partitions.

    :param seconds: subscription → the shortest time since its position moved, None if it did not since the load.
    :param rows: target → the replicators to it, or from it, that do not work.
    """

    answers: dict[str, _Answer] = field(default_factory=dict)
    seconds: dict[str, float | None] = field(default_factory=dict)
    rows: dict[str, list[Assessed]] = field(default_factory=dict)


def find_subscription_causes(facts: FleetFacts, assessed: Sequence[Assessed]) -> Iterator[Explained]:
    """For each topic with replicated subscriptions: a cluster of its list that does not answer, or cannot now."""
    rows = {(row.facts.source, row.facts.target, row.facts.topic): row for row in assessed}
    topics: dict[tuple[str, TopicName], _Topic] = {}
    for (own, partition), moved in facts.subscriptions.items():
        here = facts.namespaces.get((own, partition.namespace))
        if here is not None:
            _add(topics.setdefault((own, partition.parent), _Topic()), facts, here, partition, rows, moved)
    for (own, name), topic in sorted(topics.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        here = facts.namespaces[own, name.namespace]
        partners = [target for target, answer in topic.answers.items() if answer is _Answer.YES]
        for target, answer in topic.answers.items():
            clusters = ClusterPair(facts=facts, source=facts.clusters[own], target_name=target)
            there = facts.namespaces.get((target, name.namespace))
            pair = NamespacePair(clusters=clusters, here=here, there=there)
            if answer is _Answer.HELD and _matters(topic, target):
                evidence = f"{_who(topic, here, name)}; {lag_text(topic.rows[target])}."
                yield pair.diagnose("replicated-subscriptions-blocked", evidence, resource=str(name))
            elif answer is _Answer.NEVER:
                yield _unanswered(pair, topic, name, partners)


def _matters(topic: _Topic, target: str) -> bool:
    """A replicator to the only other cluster holds messages too; one that leads back holds positions alone."""
    return len(topic.answers) > 1 or any(row.facts.source == target for row in topic.rows[target])


def _add(
    topic: _Topic,
    facts: FleetFacts,
    here: NamespaceFacts,
    partition: TopicName,
    rows: _Rows,
    moved: Mapping[str, float | None],
) -> None:
    for name, seconds in moved.items():
        known = [value for value in (seconds, topic.seconds.get(name)) if value is not None]
        topic.seconds[name] = min(known, default=None)
    for target in here.targets_of(partition):
        held = [row for row in _both_ways(rows, here.cluster, target, partition) if _is_held(row)]
        topic.rows.setdefault(target, []).extend(held)
        answer = _Answer.NEVER if _is_silent(facts, here, target, partition, rows) else _Answer.YES
        if held and answer is _Answer.YES:
            answer = _Answer.HELD
        if topic.answers.get(target, _Answer.YES) is _Answer.YES:
            topic.answers[target] = answer


def _both_ways(rows: _Rows, own: str, target: str, partition: TopicName) -> list[Assessed]:
    return [row for key in ((own, target, partition), (target, own, partition)) if (row := rows.get(key))]


def _is_held(row: Assessed) -> bool:
    return row.state.is_fault or row.state is State.UNKNOWN


def _is_silent(facts: FleetFacts, here: NamespaceFacts, target: str, partition: TopicName, rows: _Rows) -> bool:
    """Whether the target does not replicate back: by its list, or where it was not read by its missing connection."""
    there = facts.namespaces.get((target, here.name))
    if there is not None and there.exists:
        return here.cluster not in there.clusters_of(partition)
    if there is not None:
        return False
    row = rows.get((here.cluster, target, partition))
    works = row is not None and row.facts.last is not None and not _is_held(row)
    return works and row is not None and row.facts.last is not None and not row.facts.last.inbound


def _unanswered(pair: NamespacePair, topic: _Topic, name: TopicName, partners: Sequence[str]) -> Explained:
    """A fault only where another cluster of the list answers: elsewhere no position was ever copied."""
    there = pair.there
    lists = (
        f"on {pair.target} {', '.join(there.clusters_of(name))}" if there else f"{pair.target} has no connection to it"
    )
    evidence = f"{_who(topic, pair.here, name)}, {lists}."
    if not partners:
        return pair.diagnose("replicated-subscriptions-one-way", evidence, resource=str(name))
    moved = [f"on {cluster} {_ages(pair.facts, cluster, name, topic)}" for cluster in (pair.source, *partners)]
    by_namespace = pair.here.policies_of(name).clusters is None and there is not None
    calls = completing_list(pair, there) if by_namespace and there is not None else ()
    evidence = f"{evidence} Positions last moved {', '.join(moved)}."
    return pair.diagnose("replicated-subscriptions-unanswered", evidence, resource=str(name), calls=calls)


def _who(topic: _Topic, here: NamespaceFacts, name: TopicName) -> str:
    return f"{', '.join(sorted(topic.seconds))}; list on {here.cluster} {', '.join(here.clusters_of(name))}"


def _ages(facts: FleetFacts, cluster: str, name: TopicName, topic: _Topic) -> str:
    """When the same subscriptions moved last on a cluster: `3 s ago`."""
    ages = [
        seconds
        for (own, partition), moved in facts.subscriptions.items()
        if own == cluster and partition.parent == name
        for subscription, seconds in moved.items()
        if subscription in topic.seconds and seconds is not None
    ]
    return f"{duration(min(ages))} ago" if ages else "not since the topic was loaded"


_AUTO_CREATION = {"topicType": "allowAutoTopicCreationType", "defaultNumPartitions": "defaultNumPartitions"}


def find_namespace_cause(pair: NamespacePair) -> Iterator[Explained]:
    """The cause that keeps the whole namespace from being replicated to the target."""
    there = pair.there
    if pair.here.migrated and pair.failing:
        yield pair.diagnose("namespace-migrated", f"It is flagged on {pair.source}.", explained=pair.failing)
    elif there is None or there.exists is None:
        return
    elif not there.exists:
        yield _without_namespace(pair, there)
    elif there.migrated:
        yield pair.diagnose("namespace-migrated", f"It is flagged on {pair.target}.", explained=pair.failing)


def _without_namespace(pair: NamespacePair, there: NamespaceFacts) -> Explained:
    tenant, own = quote(pair.name.tenant, safe=""), pair.target
    create = with_body("PUT", f"/namespaces/{pair.name.path}", {"replication_clusters": [own]})
    if there.tenant_exists is False:
        missing = with_body("PUT", f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": [own]})
        evidence = f"{own} has no tenant {pair.name.tenant!r}."
        return pair.diagnose("tenant-not-allowed", evidence, explained=pair.failing, calls=on(own, missing, create))
    allowed = there.tenant_clusters
    if allowed is not None and own not in allowed:
        evidence = f"The tenant on {own} allows {listed(allowed)}, and has no such namespace."
        calls = on(own, _allowing(there, own), create)
        return pair.diagnose("tenant-not-allowed", evidence, explained=pair.failing, calls=calls)
    evidence = f"{own} has no such namespace; {pair.source} lists {', '.join(pair.here.clusters)}."
    return pair.diagnose("namespace-missing", evidence, explained=pair.failing, calls=on(own, create))


def find_own_cluster_causes(
    facts: FleetFacts, assessed: Collection[Assessed], receive_only: Collection[str]
) -> Iterator[Explained]:
    """Lists that lack the cluster which stores them: of namespaces, whatever they replicate to, and of topics."""
    for here in facts.namespaces.values():
        if not here.exists:
            continue
        own, failing = here.cluster, [row for row in assessed if row.needs_cause and row.facts.namespace == here.name]
        calls = on(own, *_naming_itself(here, {own} if own in receive_only else {*here.clusters, own}))
        if not here.is_served:
            into = [row for row in failing if row.facts.target == own]
            yield _alone(here, OWN_CLUSTER, str(here.name), _lists_text(here), into, calls)
        elif here.clusters and own not in here.clusters:
            out = [row for row in failing if row.facts.source == own and own not in here.clusters_of(row.facts.topic)]
            yield _alone(here, "own-cluster-not-listed", str(here.name), _lists_text(here), out, calls)
        yield from _topics_without_own_cluster(facts, here)


def _topics_without_own_cluster(facts: FleetFacts, here: NamespaceFacts) -> Iterator[Explained]:
    """The own list of a topic has effect on the cluster that stores it, its global list where there is no own one."""
    for topic, policies in sorted((here.topic_policies or {}).items()):
        own, shared = policies.local.get(TOPIC_CLUSTERS), policies.shared.get(TOPIC_CLUSTERS)
        for there in facts.namespaces.values():
            if there.name != here.name or topic not in (there.topics or {}):
                continue
            names = own if there is here and own else shared
            has_own = there is not here and there.policies_of(topic).local.get(TOPIC_CLUSTERS)
            if names and not has_own and there.cluster not in names:
                evidence = f"Its {'own' if names is own else 'global'} list on {here.cluster} is {sorted(names)}."
                yield _alone(there, "topic-list-without-cluster", str(topic), evidence)


def _alone(
    here: NamespaceFacts,
    id_: str,
    resource: str,
    evidence: str,
    rows: Sequence[Assessed] = (),
    calls: Sequence[RemedyCall] = (),
) -> Explained:
    """A cause in one cluster alone."""
    return Explained(diagnosis(id_, resource, here.cluster, here.cluster, evidence, len(rows), calls), tuple(rows))


def _lists_text(here: NamespaceFacts) -> str:
    allowed = f"; its allowed clusters are {sorted(here.allowed_clusters)}" if here.allowed_clusters else ""
    return f"The list on {here.cluster} is {sorted(here.clusters)}{allowed}."


def _naming_itself(here: NamespaceFacts, clusters: Collection[str]) -> Iterator[Call]:
    """The calls that store this list; allowed clusters must have what a list has."""
    if here.allowed_clusters and not {*clusters} <= {*here.allowed_clusters}:
        allowed = sorted({*here.allowed_clusters, *here.clusters, *clusters})
        yield with_body("POST", f"/namespaces/{here.name.path}/allowedClusters", allowed)
    yield storing(here.name, clusters)


def find_direction_causes(pair: NamespacePair, receive_only: Collection[str]) -> Iterator[Explained]:
    """A list on one side only, unless the other side is meant only to receive, as in a migration."""
    there = pair.there
    if pair.here.cluster not in pair.here.clusters or pair.target in pair.here.added_by_run:
        return
    if pair.source in receive_only and pair.target in pair.here.clusters:
        yield pair.diagnose("receive-only-sends", f"The list on {pair.source} is {sorted(pair.here.clusters)}.")
        return
    if there is None or not there.exists or pair.target in receive_only or there.cluster not in there.clusters:
        return
    if pair.target in pair.here.clusters and pair.source not in there.clusters:
        evidence = f"{pair.source} lists {', '.join(pair.here.clusters)}; {pair.target} {', '.join(there.clusters)}."
        yield pair.diagnose("one-way", evidence, calls=completing_list(pair, there))
    yield from _topic_lists(pair, there)


def _topic_lists(pair: NamespacePair, there: NamespaceFacts) -> Iterator[Explained]:
    """Topics that are replicated in one direction by a list of their own, on either cluster."""
    both_by_namespace = pair.target in pair.here.clusters and pair.source in there.clusters
    for topic in sorted({*(pair.here.topic_policies or {}), *(there.topic_policies or {})}):
        ours, theirs = pair.here.clusters_of(topic), there.clusters_of(topic)
        own = (pair.here.policies_of(topic).clusters, there.policies_of(topic).clusters)
        if own == (None, None) or pair.here.topics is None or topic not in pair.here.topics:
            continue
        if pair.target in ours and pair.source not in theirs and (both_by_namespace or own[0]):
            yield pair.diagnose(
                "topic-list-differs",
                f"For this topic {pair.source} lists {', '.join(ours)}; {pair.target} {', '.join(theirs)}.",
                resource=str(topic),
            )


def completing_list(pair: NamespacePair, there: NamespaceFacts) -> tuple[RemedyCall, ...]:
    """The calls by which the target replicates back: cluster data, tenant, list; none if what they need is unknown."""
    target, calls = pair.clusters.target, list[Call]()
    if target is None or target.peers is None or there.tenant_clusters is None:
        return ()
    if pair.source not in target.peers:
        calls.append(storing_peer(target, pair.clusters.source))
    if pair.source not in there.tenant_clusters:
        calls.append(_allowing(there, pair.source))
    return on(pair.target, *calls, storing(pair.name, {*there.clusters, pair.target, pair.source}))


def find_auto_creation_cause(pair: NamespacePair) -> Iterator[Explained]:
    """Types or partition counts by which both clusters create topics on their first use."""
    if pair.there is None or not pair.there.exists or pair.clusters.target is None:
        return
    sides = (pair.clusters.source, pair.here), (pair.clusters.target, pair.there)
    if any(cluster.configuration is None for cluster, _ in sides):
        return
    ours, theirs = (_creation(cluster.configuration or {}, namespace) for cluster, namespace in sides)
    if ours is not None and theirs is not None and ours != theirs:
        yield pair.diagnose(
            "auto-creation-differs",
            f"{pair.source} creates {_creation_text(ours)}; {pair.target} {_creation_text(theirs)}.",
        )


def _creation(settings: Mapping[str, str], namespace: NamespaceFacts) -> tuple[str, int] | None:
    """Type and partition count; None where topics are not created."""
    override = namespace.policies.get("autoTopicCreationOverride") or {}
    allowed = override.get("allowAutoTopicCreation", settings.get("allowAutoTopicCreation", "true") == "true")
    if not allowed:
        return None
    kind = str(override.get("topicType") or settings.get(_AUTO_CREATION["topicType"]) or "non-partitioned")
    count = override.get("defaultNumPartitions") or settings.get(_AUTO_CREATION["defaultNumPartitions"]) or 1
    kind = kind.lower().replace("_", "-")
    return (kind, int(count) if kind == "partitioned" else 0)


def _creation_text(creation: tuple[str, int]) -> str:
    kind, count = creation
    return f"topics with {counted(count, 'partition')}" if count else f"{kind} topics"


def find_stray_clusters(facts: FleetFacts) -> Iterator[Explained]:
    """Tenants that allow a cluster that does not exist, and clusters that replicate to us without a list."""
    in_use: dict[tuple[str, str], set[str]] = {}
    for namespace in facts.namespaces.values():
        names = {*namespace.clusters, *namespace.allowed_clusters, *namespace.targets}
        in_use.setdefault((namespace.cluster, namespace.name.tenant), set()).update(names)
    tenants = {(namespace.cluster, namespace.name.tenant): namespace for namespace in facts.namespaces.values()}
    for (cluster, tenant), namespace in tenants.items():
        peers = facts.clusters[cluster].peers
        if peers is not None:
            for name in sorted({*(namespace.tenant_clusters or ())} - {*peers} - in_use[cluster, tenant]):
                yield _stray(namespace, name)
    yield from _inbound(facts)


def _stray(namespace: NamespaceFacts, name: str) -> Explained:
    kept = [cluster for cluster in namespace.tenant_clusters or () if cluster != name]
    body = {**(namespace.tenant or {}), "allowedClusters": kept}
    call = with_body("POST", f"/tenants/{quote(namespace.name.tenant, safe='')}", body)
    return Explained(
        diagnosis(
            "removed-cluster-in-tenant",
            f"tenant {namespace.name.tenant}",
            namespace.cluster,
            name,
            f"The tenant on {namespace.cluster} allows {', '.join(namespace.tenant_clusters or ())}.",
            calls=on(namespace.cluster, call),
        )
    )


def _inbound(facts: FleetFacts) -> Iterator[Explained]:
    seen_before: set[tuple[str, str, NamespaceName]] = set()
    for row in facts.replicators:
        key = (row.target, row.source, row.namespace)
        if row.expected or row.last is None or not row.last.inbound or key in seen_before:
            continue
        sender = facts.namespaces.get((row.target, row.namespace))
        evidence = f"{row.topic} has an inbound connection from {row.target}, at {row.last.inbound}."
        if row.target not in facts.clusters:
            id_ = "inbound-only"
        elif sender is not None and sender.exists and row.source not in sender.clusters_of(row.topic):
            id_ = "removed-cluster-sends"
        else:
            continue
        seen_before.add(key)
        yield Explained(diagnosis(id_, str(row.namespace), row.target, row.source, evidence))


def storing(namespace: NamespaceName, clusters: Collection[str]) -> Call:
    """The call that stores a namespace's list of clusters."""
    return with_body("POST", f"/namespaces/{namespace.path}/replication", sorted(clusters))


def _allowing(namespace: NamespaceFacts, cluster: str) -> Call:
    body = {**(namespace.tenant or {}), "allowedClusters": sorted({*(namespace.tenant_clusters or ()), cluster})}
    return with_body("POST", f"/tenants/{quote(namespace.name.tenant, safe='')}", body)
