"""Gates: each fault is found by its name and nothing else is; estates of any shape without a fault pass."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docs.tools.catalogue_tables import with_gates
from tests.support.migration_view import (
    NAME,
    REDIRECT,
    TOPIC,
    clean_view,
    partition,
    subscription,
    view,
    with_blue,
    with_facts,
    with_green,
    with_policies_of,
    with_probe,
    with_redirect_probe,
    with_survey,
)
from tests.support.remedies import KNOWN_DEFECTS, calls, require_harmless
from tests.support.snapshots import (
    EVENTS,
    ORDERS,
    PLAIN,
    full_pair,
    record,
    with_schemas,
    with_settings,
    with_topic,
    without_namespace,
)

from pulsar_fleet.cluster.admin.partial_reads import FUNCTIONS, Area, Note, Problem
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import KEYED_BY_CLUSTER
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.facts import CompactedView, FlaggedNamespace, NamespaceFacts, Uncopied
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.preflight.evaluation import overrides_watch
from pulsar_fleet.migration.preflight.gates import GATE_CHECKS, check
from pulsar_fleet.migration.preflight.gates.catalogue import GATES
from pulsar_fleet.migration.preflight.view import (
    AddressProbe,
    ClusterFacts,
    DagParsing,
    Expectations,
    OverridesWatch,
    View,
)
from pulsar_fleet.migration.third_clusters import ThirdLists
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.preflight.findings import Finding, Severity, blockers, count_line, findings_markdown
from pulsar_fleet.snapshot.model import TopicPolicyState

Spoil = Callable[[View], View]
PYTHON, JAVA = "Pulsar-CPP-v4.2.0", "Pulsar-Java-v4.2.4"


def ids(findings: View) -> set[str]:
    return {finding.id for finding in check(findings)}


def on_second_broker(key: str, value: str | None) -> Spoil:
    def spoil(findings: View) -> View:
        first, second = findings.blue.snapshot.brokers
        rest = {name: text for name, text in second.configuration.items() if name != key}
        changed = replace(second, configuration=rest if value is None else {**rest, key: value})
        return with_blue(findings, snapshot=replace(findings.blue.snapshot, brokers=(first, changed)))

    return spoil


def note_on(side: str, resource: str, problem: Problem = Problem.UNREADABLE) -> Spoil:
    def spoil(findings: View) -> View:
        facts: ClusterFacts = getattr(findings.survey, side)
        return with_survey(findings, **{side: replace(facts, notes=(Note(resource, problem, "it did not answer"),))})

    return spoil


def stats(*facts: object, version: str = JAVA, **documents: object) -> Spoil:
    return lambda findings: with_facts(findings, partitions=(partition(version=version, **documents),))


def green_without(kind: str) -> Spoil:
    """Green as blue, without all rows of one table."""

    def spoil(findings: View) -> View:
        return with_green(findings, snapshot=replace(findings.green.snapshot, **{kind: ()}))

    return spoil


def without_green_namespace(findings: View) -> View:
    emptied = without_namespace(findings.green.snapshot)
    return with_facts(with_green(findings, snapshot=emptied), green=None)


def stored(url: str) -> dict[str, object]:
    return {"migrated": False, "migratedClusterUrl": {**REDIRECT, "brokerServiceUrl": url, "brokerServiceUrlTls": url}}


def replicating(findings: View) -> View:
    return replace(findings, strategies={NAME: Strategy.REPLICATE})


def repointed(findings: View) -> View:
    return replace(findings, strategies={NAME: Strategy.REPOINT})


def completing(findings: View) -> View:
    return replace(findings, strategies={NAME: Strategy.COMPLETE})


def redirecting_rest(findings: View) -> View:
    return replace(findings, strategies={NAME: Strategy.COMPLETE_AND_REDIRECT})


def moving_clients(findings: View) -> View:
    expected = replace(findings.expected, group="orders")
    return replace(findings, strategies={NAME: Strategy.MOVE_CLIENTS}, expected=expected)


def both_ways(findings: View) -> View:
    return with_facts(findings, links={topic: frozenset({"green"}) for topic in findings.survey.namespaces[0].topics})


def led_to_green(findings: View) -> View:
    return with_facts(findings, led_to_green="the clients of orders are led to green by version 2", led_since=1_000)


def read_lately(findings: View) -> View:
    used = stats(**subscription("late", JAVA, lastConsumedTimestamp=1_500))(findings)
    return with_facts(findings, partitions=used.survey.namespaces[0].partitions)


def blue_of(version: str) -> Spoil:
    """Blue's brokers have this version."""

    def spoil(base: View) -> View:
        snapshot = base.blue.snapshot
        brokers = tuple(replace(broker, version=version) for broker in snapshot.brokers)
        return with_blue(base, snapshot=replace(snapshot, brokers=brokers))

    return spoil


of_3_0 = blue_of("3.0.7")


def whole_cluster(findings: View, left_out: tuple[str, ...] | None = ()) -> View:
    """The flag of the cluster redirects, and blue has these other namespaces."""
    return with_survey(replace(findings, strategies={NAME: Strategy.WHOLE_CLUSTER}), left_out=left_out)


def flagged(*sides: str) -> Spoil:
    return lambda findings: with_policies_of(findings, **{side: {"migrated": True} for side in sides})


def one_store(*clusters: str, allowed: tuple[str, ...] | None = ("blue", "green")) -> Spoil:
    """Both clusters read one configuration store, and the namespace has these lists."""

    def spoil(base: View) -> View:
        policies = {
            "replication_clusters": [*clusters],
            **({} if allowed is None else {"allowed_clusters": [*allowed]}),
        }
        facts = base.survey.namespaces[0].blue or {}
        keyed = {field: value for field in KEYED_BY_CLUSTER if (value := facts.get(field))}
        rates = {field: {**value, "green": value["blue"]} for field, value in keyed.items()}
        base = with_policies_of(base, blue={**policies, **rates})
        stored = with_settings(base.blue.snapshot, configurationMetadataStoreUrl="zk:store:2181/configuration")
        tenants = tuple(replace(row, allowed_clusters=("blue", "green")) for row in stored.tenants)
        blue = replace(stored, known_clusters=("blue", "green"), tenants=tenants)
        green = with_settings(base.green.snapshot, configurationMetadataStoreUrl="zk:store:2181/configuration")
        green = replace(green, known_clusters=("blue", "green"), tenants=blue.tenants, namespaces=blue.namespaces)
        return with_facts(
            with_green(with_blue(base, snapshot=blue), snapshot=green), green=base.survey.namespaces[0].blue
        )

    return spoil


def kept(minutes: int) -> Spoil:
    policy = {"retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": 100}}
    return lambda findings: with_policies_of(findings, blue=policy, green=policy)


def rights(**more: object) -> dict[str, object]:
    return {"auth_policies": {"namespace_auth": {"app": ["consume"]}, **more}}


def parsed_with(*, timeout: int, interval: int, stale_after: int) -> Spoil:
    parsing = DagParsing(timeout=timeout, interval=interval, stale_after=stale_after)
    return lambda findings: replace(findings, expected=replace(findings.expected, dag_parsing=parsing))


def watched(minutes: float | None, *clusters: str) -> Spoil:
    watch = OverridesWatch(minutes=minutes, clusters=clusters)
    return lambda base: replace(base, watch=watch)


def copied_with(*, topics: dict[str, Any] | None = None, **policies: Any) -> Spoil:
    """A copy of the namespace, with a consumer on its subscription, and these policies on both clusters."""
    return lambda base: replicating(
        with_policies_of(stats(**topics or {}, **subscription("billing", JAVA))(base), blue=policies, green=policies)
    )


def limited_delay(blue: str, green: str) -> Spoil:
    """A copy, with a longest delay in the settings of each cluster's brokers."""
    key = "delayedDeliveryMaxDelayInMillis"

    def spoil(base: View) -> View:
        ours = with_settings(base.blue.snapshot, **{key: blue})
        theirs = with_settings(base.green.snapshot, **{key: green})
        return replicating(with_green(with_blue(base, snapshot=ours), snapshot=theirs))

    return spoil


def limited_size(*, blue: int, green: int) -> Spoil:
    """A copy, with a largest message of its topic on each cluster."""

    def spoil(base: View) -> View:
        rows = {side: (TopicPolicyState(EVENTS, "local", {"maxMessageSize": size}, 0),) for side, size in sizes.items()}
        ours = replace(base.blue.snapshot, topic_policies=rows["blue"])
        theirs = replace(base.green.snapshot, topic_policies=rows["green"])
        return replicating(with_green(with_blue(base, snapshot=ours), snapshot=theirs))

    sizes = {"blue": blue, "green": green}
    return spoil


def slow(messages: int) -> Spoil:
    """A copy of 100,000 messages, with this rate for the topics on both clusters."""
    rate = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    return copied_with(topics={"msgInCounter": 100_000}, topicDispatchRate={"blue": rate, "green": rate})


def quota(limit: int, *, policy: str = "producer_exception", age: int = -1, minutes: int = 0) -> Spoil:
    """A copy of 5 MB, with these backlog quotas and this retention."""
    quotas = {
        "destination_storage": {"limitSize": limit, "limitTime": -1, "policy": policy},
        "message_age": {"limitSize": -1, "limitTime": age, "policy": policy},
    }
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": 1000}
    return copied_with(topics={"storageSize": 5_000_000}, backlog_quota_map=quotas, retention_policies=retention)


IDLE = subscription("archive", msgBacklog=7)
READER = subscription("reader", PYTHON, isDurable=False)
LINK = {"replication": {"west": {"connected": True, "replicationBacklog": 9, "outboundConnection": "x"}}}
UNLISTED = {"replication": {"west": {"connected": False, "replicationBacklog": 9}}}
INBOUND_OF_GREEN = {"replication": {"green": {"connected": True, "inboundConnection": "x"}}}
INBOUND = {"replication": {"west": {"connected": True, "inboundConnection": "x"}}}
COPIED = {"replication": {"green": {"connected": True, "replicationBacklog": 0, "outboundConnection": "x"}}}
SECOND = TopicName(NAME, "second")
FLAGGED = FlaggedNamespace(name="acme/other", terminated=False)
MOVED = FlaggedNamespace(name="acme/moved", terminated=True, is_on_green=True)


def answering(host: str) -> AddressProbe:
    """The stored redirect of blue leads to this broker."""
    return AddressProbe(key="brokerServiceUrl", url="pulsar://alias:6650", answered=f"pulsar://{host}:6650")


def served_by(copy: str) -> Spoil:
    """A topic that moves has a shadow topic."""

    def spoil(base: View) -> View:
        rows = base.blue.snapshot.topic_policies
        served = tuple(replace(row, policies={**row.policies, "shadowTopics": [copy]}) for row in rows)
        return with_blue(base, snapshot=replace(base.blue.snapshot, topic_policies=served))

    return spoil


def by_the_run(spoil: Spoil) -> Spoil:
    """The same fault, where the run itself prepares green."""
    return lambda base: spoil(replace(base, expected=Expectations(prepares_green=True)))


FAULTS: tuple[tuple[str, Spoil], ...] = (
    ("migration-check-off", on_second_broker("clusterMigrationCheckDurationSeconds", "0")),
    ("migration-check-off", on_second_broker("clusterMigrationCheckDurationSeconds", None)),
    ("migration-check-off", on_second_broker("clusterMigrationCheckDurationSeconds", "")),
    ("migration-check-seldom", on_second_broker("clusterMigrationCheckDurationSeconds", "30")),
    ("auto-resource-creation-on", on_second_broker("clusterMigrationAutoResourceCreation", "true")),
    ("broker-not-readable", note_on("blue", "broker blue-2.example:8080")),
    ("superuser-needed", note_on("blue", Area.BROKERS, Problem.HIDDEN)),
    ("superuser-needed", note_on("green", Area.CLUSTERS, Problem.HIDDEN)),
    ("functions-unknown", note_on("blue", FUNCTIONS)),
    ("not-readable", note_on("blue", "functions/orders")),
    ("not-readable", note_on("blue", "functions")),
    ("not-readable", note_on("green", f"topic policies of {ORDERS}")),
    ("topic-not-readable", lambda base: with_facts(base, unread=(Note(EVENTS, Problem.UNREADABLE, "500"),))),
    ("redirect-not-supported", blue_of("3.0.7")),
    ("restart-repeats policies-cache-stuck", blue_of("4.0.7")),
    ("cluster-flag-not-needed blue-must-not-restart", whole_cluster),
    ("namespace-left-out blue-must-not-restart", lambda base: whole_cluster(of_3_0(base), left_out=("acme/other",))),
    ("namespace-left-out blue-must-not-restart", lambda base: whole_cluster(of_3_0(base), left_out=None)),
    ("redirect-unreachable", lambda base: with_probe(base, "brokerServiceUrl", answered="", error="refused")),
    ("redirect-not-green", lambda base: with_probe(base, "brokerServiceUrl", answered="pulsar://third:6650")),
    ("redirect-not-green", lambda base: with_probe(base, "serviceUrl", answered="http://third:8080")),
    ("redirect-not-verified", lambda base: with_probe(base, "brokerServiceUrl", answered="", detail="no such topic")),
    ("redirect-kind-missing", on_second_broker("brokerServicePortTls", "Optional[6651]")),
    ("redirect-to-another-cluster", lambda base: with_blue(base, redirect=stored("pulsar://third:6650"))),
    ("redirect-left-on-green", lambda base: with_green(base, redirect=stored("pulsar://third:6650"))),
    ("redirect-unknown", lambda base: with_blue(base, redirect=None)),
    ("credentials-refused-by-green", lambda base: with_redirect_probe(base, credentials="401")),
    ("credentials-unknown", lambda base: with_redirect_probe(base, unanswered="it did not answer for 10 s")),
    ("certificate-not-trusted", lambda base: with_redirect_probe(base, trust="unknown authority")),
    ("blue-is-migrated", lambda base: with_blue(base, redirect={"migrated": True})),
    ("green-is-migrated", lambda base: with_green(base, redirect={"migrated": True})),
    ("flag-left-elsewhere", lambda base: with_survey(base, flagged=(FLAGGED,))),
    ("redirect-lost", lambda base: with_survey(base, flagged=(MOVED,))),
    (
        "redirect-to-other-addresses",
        lambda base: with_survey(
            with_blue(base, redirect=stored("pulsar://alias:6650")), stored_probes=(answering("green-0.example"),)
        ),
    ),
    ("flags-unknown", lambda base: with_survey(base, flagged=None)),
    (
        "copied-and-redirected",
        lambda base: with_facts(stats(**COPIED)(base), links={TOPIC: frozenset({"green"})}),
    ),
    ("namespace-missing", lambda base: with_facts(base, blue=None)),
    ("namespace-migrated", flagged("blue")),
    ("namespace-migrated", flagged("green")),
    ("namespace-migrated both-sides-flagged", flagged("blue", "green")),
    (
        "green-not-in-list green-policies-differ",
        lambda base: with_policies_of(base, green={"replication_clusters": ["blue"]}),
    ),
    ("green-not-in-list", one_store("blue", allowed=())),
    ("green-not-in-list", one_store("blue", allowed=None)),
    ("replicates-in-shared-store", one_store("blue", "green")),
    ("green-namespace-missing", without_green_namespace),
    ("green-tenant-differs", green_without("tenants")),
    ("green-topic-policies-differ", green_without("topic_policies")),
    ("green-schemas-missing", green_without("schemas")),
    ("green-subscriptions-missing", green_without("subscriptions")),
    (
        "green-policies-differ",
        lambda base: with_policies_of(base, blue={"max_producers_per_topic": 7}),
    ),
    (
        "change-needs-permission",
        by_the_run(lambda base: with_policies_of(base, blue={"message_ttl_in_seconds": 8_640_000})),
    ),
    (
        "role-missing-on-green green-policies-differ",
        lambda base: with_policies_of(base, green={"auth_policies": {"namespace_auth": {}}}),
    ),
    (
        "role-missing-on-green green-policies-differ",
        lambda base: with_policies_of(
            base, blue=rights(destination_auth={EVENTS: {"app": ["produce"]}}), green=rights()
        ),
    ),
    (
        "role-missing-on-green green-policies-differ",
        lambda base: with_policies_of(base, blue=rights(subscription_auth_roles={"b": ["app"]}), green=rights()),
    ),
    ("green-in-use", lambda base: with_facts(base, green_clients={JAVA: 2})),
    (
        "retention-shorter-than-lag",
        kept(5),
    ),
    (
        "copy-not-kept copy-throttled",
        lambda base: replicating(
            with_facts(base, partitions=(partition(**subscription("billing", JAVA, msgBacklog=60_000)),))
        ),
    ),
    ("transactions-in-use", stats(committedTxnCount=1)),
    ("transactions-in-use", stats(abortedTxnCount=1)),
    ("transactions-in-use", stats(ongoingTxnCount=1)),
    ("transactions-in-use", lambda base: with_facts(base, transacted=frozenset({TOPIC}))),
    ("non-persistent-topic", lambda base: with_facts(base, topics={TopicName(NAME, "live", persistent=False): 0})),
    ("delayed-messages", stats(**subscription("later", JAVA, msgBacklog=3, msgDelayed=3))),
    ("abandoned-subscription", stats(**IDLE)),
    ("replicator-disconnected", lambda base: with_facts(base, links={TOPIC: frozenset({"west"})})),
    ("replicator-disconnected", stats(**UNLISTED)),
    ("replication-backlog", stats(**LINK)),
    ("replicates-into-blue", stats(**INBOUND)),
    ("moved-topic-not-linked", completing),
    ("clients-not-led-to-green", lambda base: redirecting_rest(both_ways(stats(**COPIED)(base)))),
    ("clients-led-to-green", led_to_green),
    ("clients-led-to-green", lambda base: moving_clients(led_to_green(base))),
    ("clients-led-to-blue", lambda base: with_facts(base, led_to_blue=("orders",))),
    ("clients-led-to-blue", lambda base: moving_clients(with_facts(base, led_to_blue=("orders", "billing")))),
    (
        "read-on-blue-since moved-topic-not-linked subscription-missing-on-green",
        lambda base: completing(read_lately(led_to_green(base))),
    ),
    (
        "unread-not-copied",
        lambda base: repointed(
            with_facts(
                stats(**subscription("app", JAVA, msgBacklog=7))(base), uncopied={TOPIC: Uncopied(3, {"app": 3})}
            )
        ),
    ),
    (
        "abandoned-subscription unread-not-copied",
        lambda base: replicating(with_facts(stats(**IDLE)(base), uncopied={TOPIC: Uncopied(3, {"archive": 3})})),
    ),
    (
        "migrated-property",
        lambda base: with_blue(base, snapshot=with_topic(base.blue.snapshot, EVENTS, properties={"migrated": "true"})),
    ),
    ("functions-in-namespace", lambda base: with_facts(base, functions=("sink 'archive'",))),
    ("compacted-values-stay", lambda base: with_facts(base, compacted={TOPIC: CompactedView(10, in_log=True)})),
    (
        "compacted-values-trimmed",
        lambda base: replicating(with_facts(base, compacted={TOPIC: CompactedView(10, in_log=False)})),
    ),
    ("retained-messages-stay", lambda base: with_facts(base, retained="the namespace")),
    (
        "retained-messages-not-copied",
        lambda base: replicating(with_facts(base, retained="the namespace", uncopied={TOPIC: Uncopied(3, {})})),
    ),
    ("shadow-stays", lambda base: with_facts(base, shadows={TOPIC: str(SECOND)})),
    ("read-only-copy-ends shadow-deletes-source", served_by("persistent://acme/readers/events")),
    ("scalable-topics-stay", lambda base: with_facts(base, scalable=("topic://acme/orders/a",))),
    ("topic-ended", lambda base: with_facts(base, ended=TOPIC.partitions(1))),
    ("client-cannot-follow", stats(version="2.11.4")),
    ("client-needs-tls-url", stats(version="Pulsar-Java-v3.0.7")),
    ("client-may-hang", stats(version=PYTHON)),
    ("client-repeats", stats(version="Pulsar-Go-v0.19.0")),
    ("client-unknown", stats(version="something")),
    ("client-may-hang reader-stalls", stats(**READER)),
    ("non-durable-consumer", stats(**subscription("reader", JAVA, isDurable=False))),
    (
        "pattern-consumer-possible",
        lambda base: with_facts(
            base, partitions=tuple(partition(topic, **subscription("billing", JAVA)) for topic in (TOPIC, SECOND))
        ),
    ),
    ("no-subscription-left", copied_with(max_subscriptions_per_topic=2)),
    ("no-consumer-left", copied_with(max_consumers_per_topic=1)),
    ("exclusive-not-permitted", copied_with(subscription_types_enabled=["Shared"])),
    ("replicator-not-encrypted", copied_with(encryption_required=True)),
    ("longest-delay-shorter behaves-differently", limited_delay("0", "60000")),
    ("message-size-lower green-topic-policies-differ", limited_size(blue=2000, green=1000)),
    ("copy-throttled", slow(100)),
    ("copy-exceeds-quota", quota(1 << 20, minutes=600)),
    ("copy-exceeds-quota", quota(-1, policy="consumer_backlog_eviction", age=30_000, minutes=600)),
    ("copy-exceeds-quota", quota(-1, policy="producer_request_hold", age=30_000, minutes=-1)),
    ("dag-may-become-stale", parsed_with(timeout=50, interval=30, stale_after=50)),
    ("watch-not-running", watched(None)),
    ("watch-not-running", watched(91, "pulsar_blue")),
    ("watch-not-running", watched(1, "pulsar_green")),
)


def of_failback(base: View) -> View:
    return replace(base, expected=Expectations(prepares_green=False, is_failback=True))


def with_tls(base: View) -> View:
    """Both clusters offer TLS, and green's brokers answer."""
    tls = {"brokerServicePortTls": "Optional[6651]"}
    both = with_green(
        with_blue(base, snapshot=with_settings(base.blue.snapshot, **tls)),
        snapshot=with_settings(base.green.snapshot, **tls),
    )
    return with_probe(
        both, "brokerServiceUrlTls", placeholder=False, error="", answered="pulsar://green-0.example:6650"
    )


def linked(base: View) -> View:
    """The namespace is copied to green by a replicator that is connected."""
    return with_facts(stats(**COPIED)(base), links={TOPIC: frozenset({"green"})})


HOME = {"home": frozenset(REDIRECT.values())}
STORED = {"migrated": False, "migratedClusterUrl": dict(REDIRECT)}
CHECK_PERIOD, CREATION = "clusterMigrationCheckDurationSeconds", "clusterMigrationAutoResourceCreation"
SHARED_ONLY: dict[str, Any] = {"subscription_types_enabled": ["Shared"]}
ENCRYPTED: dict[str, Any] = {"encryption_required": True}
NEAREST: dict[str, Spoil] = {
    "migration-check-off": on_second_broker(CHECK_PERIOD, "1"),
    "migration-check-seldom": on_second_broker(CHECK_PERIOD, "10"),
    "auto-resource-creation-on": on_second_broker(CREATION, "false"),
    "broker-not-readable": note_on("blue", "broker blue-2.example:8080", Problem.DELETED),
    "superuser-needed": note_on("blue", Area.BROKERS, Problem.NOT_OFFERED),
    "functions-unknown": note_on("blue", FUNCTIONS, Problem.NOT_OFFERED),
    "not-readable": note_on("green", f"topic policies of {ORDERS}", Problem.DELETED),
    "topic-not-readable": lambda base: with_facts(base, unread=(Note(EVENTS, Problem.UNREADABLE, "500"),), blue=None),
    "redirect-not-supported": lambda base: repointed(blue_of("3.0.7")(base)),
    "restart-repeats": blue_of("4.0.12"),
    "policies-cache-stuck": blue_of("4.0.12"),
    "cluster-flag-not-needed": lambda base: whole_cluster(of_3_0(base)),
    "namespace-left-out": lambda base: whole_cluster(of_3_0(base)),
    "blue-must-not-restart": lambda base: repointed(of_3_0(base)),
    "redirect-unreachable": lambda base: with_probe(base, "brokerServiceUrlTls", error="timed out"),
    "redirect-not-green": lambda base: with_redirect_probe(
        with_probe(base, "brokerServiceUrl", answered="pulsar://third:6650"),
        advertised=frozenset({"pulsar://third:6650", "http://green-0.example:8080"}),
    ),
    "redirect-not-verified": lambda base: with_probe(base, "brokerServiceUrl", detail="no such topic"),
    "redirect-kind-missing": with_tls,
    "redirect-to-another-cluster": lambda base: with_blue(base, redirect=STORED),
    "redirect-left-on-green": lambda base: with_survey(with_green(base, redirect=STORED), **HOME),
    "redirect-unknown": lambda base: with_blue(base, redirect={}),
    "credentials-refused-by-green": lambda base: with_redirect_probe(base, trust="unknown authority"),
    "credentials-unknown": lambda base: with_redirect_probe(base, credentials="401"),
    "certificate-not-trusted": lambda base: with_redirect_probe(base, credentials="401"),
    "blue-is-migrated": lambda base: with_blue(base, redirect={"migrated": False}),
    "green-is-migrated": lambda base: with_green(base, redirect={"migrated": False}),
    "flag-left-elsewhere": lambda base: with_blue(with_survey(base, flagged=(MOVED,)), redirect=STORED),
    "redirect-lost": lambda base: with_blue(with_survey(base, flagged=(MOVED,)), redirect=STORED),
    "redirect-to-other-addresses": lambda base: with_survey(
        with_blue(base, redirect=stored("pulsar://alias:6650")), stored_probes=(answering("third.example"),)
    ),
    "flags-unknown": lambda base: with_blue(with_survey(base, flagged=None), redirect=STORED),
    "copied-and-redirected": lambda base: replicating(linked(base)),
    "namespace-missing": lambda base: with_facts(base, blue={}),
    "namespace-migrated": lambda base: with_policies_of(base, blue={"migrated": False}),
    "both-sides-flagged": flagged("blue"),
    "green-not-in-list": lambda base: with_policies_of(base, green={"replication_clusters": ["blue", "green"]}),
    "replicates-in-shared-store": one_store("blue"),
    "green-namespace-missing": by_the_run(without_green_namespace),
    "green-tenant-differs": by_the_run(green_without("tenants")),
    "green-topic-policies-differ": by_the_run(green_without("topic_policies")),
    "green-schemas-missing": by_the_run(green_without("schemas")),
    "green-subscriptions-missing": by_the_run(green_without("subscriptions")),
    "green-policies-differ": by_the_run(lambda base: with_policies_of(base, blue={"max_producers_per_topic": 7})),
    "change-needs-permission": by_the_run(
        lambda base: with_policies_of(
            base, blue={"message_ttl_in_seconds": 8_640_000}, green={"message_ttl_in_seconds": 8_600_000}
        )
    ),
    "role-missing-on-green": lambda base: with_policies_of(
        base, blue=rights(), green={"auth_policies": {"namespace_auth": {"app": ["consume", "produce"]}}}
    ),
    "green-in-use": lambda base: of_failback(with_facts(base, green_clients={JAVA: 2})),
    "retention-shorter-than-lag": kept(60),
    "copy-not-kept": lambda base: replicating(
        with_facts(base, partitions=(partition(**subscription("billing", JAVA, msgBacklog=49_999)),))
    ),
    "transactions-in-use": stats(committedTxnCount=0, abortedTxnCount=0, ongoingTxnCount=0),
    "non-persistent-topic": lambda base: with_facts(base, topics={TopicName(NAME, "live"): 0}),
    "delayed-messages": stats(**subscription("later", JAVA, msgBacklog=3, msgDelayed=0)),
    "abandoned-subscription": stats(**subscription("archive", JAVA, msgBacklog=7)),
    "replicator-disconnected": lambda base: with_facts(stats(**LINK)(base), links={TOPIC: frozenset({"west"})}),
    "replication-backlog": linked,
    # Also of green itself, where the run ends that.
    "replicates-into-blue": lambda base: completing(stats(**INBOUND_OF_GREEN)(base)),
    "moved-topic-not-linked": lambda base: completing(both_ways(base)),
    "subscription-missing-on-green": lambda base: read_lately(led_to_green(base)),
    "clients-led-to-green": lambda base: repointed(led_to_green(base)),
    "clients-led-to-blue": led_to_green,
    "clients-not-led-to-green": lambda base: redirecting_rest(led_to_green(both_ways(stats(**COPIED)(base)))),
    # Read before the applications moved.
    "read-on-blue-since": lambda base: completing(read_lately(with_facts(base, led_to_green="…", led_since=2_000))),
    "unread-not-copied": lambda base: replicating(
        with_facts(stats(**subscription("app", JAVA, msgBacklog=7))(base), uncopied={TOPIC: Uncopied(3, {"app": 3})})
    ),
    "migrated-property": lambda base: with_blue(
        base,
        snapshot=with_topic(base.blue.snapshot, EVENTS, properties={"migrated": "true"}, terminated=True),
    ),
    "functions-in-namespace": lambda base: with_facts(base, functions=()),
    "compacted-values-stay": lambda base: with_facts(base, compacted={}),
    "compacted-values-trimmed": lambda base: replicating(
        with_facts(base, compacted={TOPIC: CompactedView(10, in_log=True)})
    ),
    "retained-messages-stay": lambda base: replicating(with_facts(base, retained="the namespace")),
    "retained-messages-not-copied": lambda base: replicating(with_facts(base, uncopied={TOPIC: Uncopied(3, {})})),
    "shadow-stays": lambda base: with_facts(base, shadows={}),
    "shadow-deletes-source": lambda base: base,
    "read-only-copy-ends": served_by("persistent://acme/orders/shadow"),
    "scalable-topics-stay": lambda base: with_facts(base, scalable=()),
    "topic-ended": lambda base: with_facts(base, ended=()),
    **dict.fromkeys(
        ("client-cannot-follow", "client-needs-tls-url", "client-may-hang", "client-repeats", "client-unknown"),
        stats(version="Pulsar-Java-v3.3.0"),
    ),
    "reader-stalls": stats(**subscription("reader", JAVA, isDurable=False)),
    "non-durable-consumer": stats(**subscription("reader", JAVA)),
    "pattern-consumer-possible": lambda base: with_facts(
        base, partitions=tuple(partition(part, **subscription("billing", JAVA)) for part in TOPIC.partitions(3))
    ),
    "no-subscription-left": copied_with(max_subscriptions_per_topic=3),
    "no-consumer-left": copied_with(max_consumers_per_topic=2),
    "exclusive-not-permitted": lambda base: with_policies_of(base, blue=SHARED_ONLY, green=SHARED_ONLY),
    "replicator-not-encrypted": lambda base: with_policies_of(base, blue=ENCRYPTED, green=ENCRYPTED),
    "longest-delay-shorter": limited_delay("1000", "2000"),
    "message-size-lower": limited_size(blue=1000, green=1000),
    "behaves-differently": limited_delay("1000", "1000"),
    "copy-throttled": slow(0),
    "copy-exceeds-quota": quota(5_000_001, age=36_001, minutes=600),
    "dag-may-become-stale": parsed_with(timeout=50, interval=30, stale_after=161),
    "watch-not-running": watched(90, "pulsar_blue"),
}
"""By finding: the state nearest to its fault in which its remedy would be wrong."""


@pytest.mark.parametrize("id_", NEAREST)
def test_a_remedy_is_not_printed_in_the_nearest_state_where_it_is_wrong(id_: str) -> None:
    assert id_ not in ids(NEAREST[id_](view()))


def test_who_has_stayed_on_blue_is_redirected_when_the_move_is_completed() -> None:
    base = led_to_green(both_ways(view()))
    redirecting = redirecting_rest(base)
    assert "clients-led-to-green" in ids(replace(base, strategies={NAME: Strategy.REPLICATE}))
    assert "clients-led-to-green" not in ids(redirecting)
    assert "client-cannot-follow" in ids(stats(version="2.11.4")(redirecting))


def test_clusters_with_one_store_redirect_what_replicates_nowhere() -> None:
    assert ids(one_store("blue")(view())) == set()
    assert "shared-configuration-store" in ids(replicating(one_store("blue")(view())))
    allowing, upgrading = (by_id(one_store("blue", allowed=lists)(view()), "green-not-in-list") for lists in ((), None))
    assert "do not add green to replication_clusters" in allowing.remedy
    assert allowing.call == 'green: POST /admin/v2/namespaces/acme/orders/allowedClusters ["blue", "green"]'
    assert "upgrade the brokers to Pulsar 4.0" in upgrading.remedy


def test_every_fault_has_a_nearest_state() -> None:
    assert {name for expected, _ in FAULTS for name in expected.split()} == set(NEAREST)


def test_no_copy_is_advised_for_what_a_third_cluster_replicates_into_blue() -> None:
    base = stats(**INBOUND)(view())
    redirected, copied = (by_id(state, "replicates-into-blue").remedy for state in (base, replicating(base)))
    assert redirected.startswith("name a connection to west in third_clusters")
    assert copied.startswith("move the namespace with redirect")


def third(state: View, *clusters: str, own: Sequence[str] = ()) -> View:
    """The run has a connection to west, which has these lists."""
    lists = ThirdLists(clusters=frozenset(clusters), own={TopicName.parse(EVENTS): frozenset(own)} if own else {})
    return replace(state, thirds={"west": {NAME: lists}}, third_connections=("pulsar_west",))


def test_a_run_that_redirects_leads_what_a_third_cluster_replicates() -> None:
    base = stats(**INBOUND)(view())
    assert check(third(base, "west", "blue")) == check(view())
    assert check(third(view(), "west")) == check(view())
    # Not connected now, and by the list of one topic alone.
    assert check(third(view(), "west", own=["west", "blue"])) == check(view())
    for state in (replicating, repointed):
        assert "replicates-into-blue" in ids(third(state(view()), "west", own=["west", "blue"]))
    both = by_id(third(base, "west", "blue", "green"), "replicates-into-blue")
    assert both.remedy.startswith("west replicates to green as well")
    moved = redirecting_rest(third(led_to_green(both_ways(base)), "west", "blue"))
    assert by_id(moved, "replicates-into-blue").remedy.startswith("stop the namespace")


def test_a_third_cluster_is_watched_too() -> None:
    led = third(stats(**INBOUND)(view()), "west", "blue")
    assert "watch-not-running" not in ids(watched(5, "pulsar_blue", "pulsar_west")(led))
    unwatched = by_id(watched(5, "pulsar_blue", "pulsar_green")(led), "watch-not-running")
    assert 'add "pulsar_west" to `clusters`' in unwatched.remedy


def shapes(topic: str, blue: int, green: int) -> View:
    pair = full_pair()
    return view(
        replace(
            pair,
            source=with_topic(pair.source, topic, partitions=blue),
            target=with_topic(pair.target, topic, partitions=green),
        )
    )


@pytest.mark.parametrize(
    ("expected", "spoil"), FAULTS, ids=[f"{index}-{name}" for index, (name, _) in enumerate(FAULTS)]
)
def test_a_fault_is_found_by_its_name_and_nothing_else_is(expected: str, spoil: Spoil) -> None:
    assert ids(spoil(view())) == set(expected.split())


@pytest.mark.parametrize("spoil", [spoil for _, spoil in FAULTS], ids=[name for name, _ in FAULTS])
@pytest.mark.parametrize("prepares", [True, False])
def test_a_remedy_with_a_hazard_names_its_precondition(spoil: Spoil, prepares: bool) -> None:
    for finding in check(spoil(view(prepares=prepares))):
        require_harmless(finding)


@pytest.mark.parametrize("prepares", [True, False])
def test_a_policy_of_a_topic_is_raised_where_it_is_set(prepares: bool) -> None:
    row = TopicPolicyState(EVENTS, "local", {"maxSubscriptionsPerTopic": 1}, 0)
    base = replicating(view(prepares=prepares))
    both = [replace(side.snapshot, topic_policies=(row,)) for side in (base.blue, base.green)]
    finding = by_id(with_green(with_blue(base, snapshot=both[0]), snapshot=both[1]), "no-subscription-left")
    assert finding.resource == EVENTS
    assert [cluster for cluster, _ in calls(finding.call)] == (["blue"] if prepares else ["blue", "green"])
    assert "maxSubscriptionsPerTopic = 1 by the topic on blue" in finding.evidence


def lost(base: View) -> View:
    """Blue's redirect was overwritten after a namespace had moved to green."""
    return with_blue(with_survey(base, flagged=(MOVED,)), redirect=stored("pulsar://localhost:1"))


def by_id(state: View, id_: str) -> Finding:
    return next(finding for finding in check(state) if finding.id == id_)


def test_the_address_of_a_replaced_broker_is_stored_again_by_the_run() -> None:
    document = {**REDIRECT, "brokerServiceUrlTls": "pulsar+ssl://green-9.example:6651"}
    probes = (
        AddressProbe(
            key="brokerServiceUrl", url=REDIRECT["brokerServiceUrl"], answered="pulsar://green-0.example:6650"
        ),
        AddressProbe(key="brokerServiceUrlTls", url=document["brokerServiceUrlTls"], error="refused"),
    )
    state = with_survey(view(), flagged=(MOVED,), stored_probes=probes)
    assert ids(with_blue(state, redirect={"migratedClusterUrl": document})) == set()


def test_a_lost_redirect_is_stored_again_with_the_verified_addresses() -> None:
    finding = by_id(lost(view()), "redirect-lost")
    assert finding.call == f"blue: POST /admin/v2/clusters/blue/migrate?migrated=false {json.dumps(REDIRECT)}"
    assert "leave the flags" in finding.remedy


@pytest.mark.parametrize(
    "spoil",
    [
        lambda base: with_probe(base, "brokerServiceUrl", answered="", error="refused"),
        lambda base: with_probe(base, "brokerServiceUrl", answered="pulsar://third:6650"),
        flagged("blue"),
        lambda base: with_blue(base, redirect={**stored("pulsar://localhost:1"), "migrated": True}),
    ],
    ids=["connection does not answer", "connection leads elsewhere", "a flag would take effect", "cluster is flagged"],
)
def test_a_redirect_is_not_stored_again_while_that_could_harm(spoil: Spoil) -> None:
    finding = by_id(spoil(lost(view())), "redirect-lost")
    assert (finding.call, finding.remedy.startswith("leave the flags. Do first")) == ("", True)


@pytest.mark.parametrize(
    ("namespace", "says"),
    [
        (replace(MOVED, lacking=("namespace acme/moved",)), "leave its flag"),
        (replace(MOVED, is_on_green=False), "leave its flag"),
        (replace(FLAGGED, moved_by="migrate_namespaces/earlier"), "leave its flag"),
        (replace(FLAGGED, terminated=None), "leave its flag until its topics can be read"),
    ],
    ids=["green lacks it", "not known where it is", "moved by the ledger", "not read"],
)
def test_a_flag_that_may_redirect_clients_is_never_advised_to_be_cleared(
    namespace: FlaggedNamespace, says: str
) -> None:
    for redirect in ({}, stored("pulsar://third:6650")):
        state = with_blue(with_survey(view(), flagged=(namespace,)), redirect=redirect)
        finding = by_id(state, "flag-left-elsewhere")
        assert (finding.call, finding.remedy.startswith(says)) == ("", True)
        assert "redirect-lost" not in ids(state)


def test_a_flag_is_kept_while_a_redirect_makes_it_effective() -> None:
    state = with_survey(view(), flagged=(FLAGGED,))
    assert by_id(state, "flag-left-elsewhere").call
    for redirect in (None, {"migratedClusterUrl": {}}, stored("pulsar://third:6650")):
        assert by_id(with_blue(state, redirect=redirect), "flag-left-elsewhere").call == ""


@pytest.mark.parametrize("side", ["blue", "green"])
def test_the_flag_of_a_cluster_is_never_advised_to_be_cleared(side: str) -> None:
    spoil, id_ = {"blue": with_blue, "green": with_green}[side], f"{side}-is-migrated"
    for redirect in ({"migrated": True}, *({"migrated": True, "migratedClusterUrl": url} for url in ({}, REDIRECT))):
        finding = by_id(spoil(view(), redirect=redirect), id_)
        assert (finding.call, finding.remedy.startswith("choose another cluster")) == ("", True)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"destination_auth": {EVENTS: {"one": ["produce"]}}},
            f"role 'one' may produce on blue ({EVENTS}), not on green",
        ),
        ({"subscription_auth_roles": {"b": ["two"]}}, "role 'two' may consume on blue (subscription b), not on green"),
    ],
    ids=["topic", "subscription"],
)
def test_a_right_that_green_lacks_is_named_with_its_place(more: dict[str, object], text: str) -> None:
    findings = check(with_policies_of(view(), blue=rights(**more), green=rights()))
    assert [finding.evidence for finding in findings if finding.id == "role-missing-on-green"] == [text]


def test_partitions_that_do_not_exist_yet_need_no_link() -> None:
    """A broker creates a partition on first use, and deletes an inactive one while its topic stays."""
    partitions = tuple(TopicStats.of(topic, {}, exists=False) for topic in TOPIC.partitions(3))
    assert check(with_facts(view(), links={TOPIC: frozenset({"west"})}, partitions=partitions)) == ()


def test_topics_of_another_shape_are_found() -> None:
    assert ids(shapes(EVENTS, 12, 8)) >= {"partitions-grow"}
    assert blockers(check(shapes(EVENTS, 12, 8))) != ()
    assert "partitions-differ" in ids(shapes(EVENTS, 8, 12))
    assert "partitioned-on-one-side" in ids(shapes(PLAIN, 1, 0))


def test_topics_that_green_lacks_are_found() -> None:
    pair = full_pair()
    findings = view(replace(pair, source=with_topic(pair.source, f"persistent://{ORDERS}/new", partitions=3)))
    assert ids(findings) == {"green-topics-missing"}


def test_schemas_that_refuse_each_other_are_found() -> None:
    pair = full_pair()
    findings = view(replace(pair, target=with_schemas(pair.target, EVENTS, record(("else", "long")))))
    assert "schema-incompatible" in {finding.id for finding in blockers(check(findings))}


def test_brokers_that_are_too_old_are_found() -> None:
    assert "version-unknown" in ids(blue_of("3.3.9")(view()))


def test_needs_of_a_redirect_are_not_asked_of_repointed_applications() -> None:
    """No redirect is stored and no flag set: other flags, another redirect and the check of the flag have no effect."""
    findings = on_second_broker("clusterMigrationCheckDurationSeconds", "0")(view())
    findings = with_blue(with_survey(findings, flagged=(FLAGGED,)), redirect=stored("pulsar://third:6650"))
    findings = with_redirect_probe(with_probe(findings, "serviceUrl", error="refused"), credentials="401")
    assert len(ids(findings)) > 3
    assert ids(repointed(findings)) == set()


def test_every_gate_that_is_documented_has_been_seen_to_find_something() -> None:
    reported = {name for expected, _ in FAULTS for name in expected.split()} | {"green-topics-missing"}
    assert set(GATES) - reported == set()


@pytest.mark.parametrize("seed", range(20))
def test_clean_estates_of_any_shape_have_no_finding(seed: int) -> None:
    """But for known defects of their version that such an estate can meet."""
    known = {*KNOWN_DEFECTS, "restart-repeats"}
    assert [finding for finding in check(clean_view(seed)) if finding.id not in known] == []


def test_an_estate_that_green_holds_already_has_no_finding() -> None:
    assert check(view()) == ()


def test_what_the_run_prepares_on_green_is_no_fault() -> None:
    findings = without_green_namespace(view(prepares=True))
    assert check(findings) == ()


def test_the_redirect_of_an_earlier_wave_to_the_same_green_passes() -> None:
    earlier = {"migrated": False, "migratedClusterUrl": dict(REDIRECT)}
    assert ids(with_blue(with_survey(view(), flagged=(MOVED,)), redirect=earlier)) == set()


def test_one_broker_whose_check_is_off_is_named() -> None:
    (findings,) = check(on_second_broker("clusterMigrationCheckDurationSeconds", "0")(view()))
    assert findings.resource == "broker blue-1.example:8080 of blue"
    assert (findings.owner, findings.severity) == ("operators of blue", Severity.BLOCKER)


def test_a_subscription_that_is_carried_over_is_a_warning() -> None:
    (findings,) = check(replicating(stats(**IDLE)(kept(600)(view()))))
    assert (findings.id, findings.severity) == ("abandoned-subscription", Severity.WARNING)


def test_an_abandoned_subscription_says_when_it_was_last_read() -> None:
    (findings,) = check(stats(**subscription("archive", msgBacklog=7, lastAckedTimestamp=1_763_719_200_000))(view()))
    assert (findings.resource, findings.evidence) == (
        f"{EVENTS} archive",
        "7 unread entries and no consumer; last read 2025-11-21 10:00 UTC",
    )


def test_deduplication_on_green_is_known_to_cure_the_duplicates_of_go() -> None:
    policy = {"deduplicationEnabled": True}
    findings = with_policies_of(stats(version="Pulsar-Go-v0.19.0")(view()), blue=policy, green=policy)
    (finding,) = [finding for finding in check(findings) if finding.id == "client-repeats"]
    assert "deduplication is on there" in finding.remedy


def test_deduplication_on_green_alone_is_no_cure_since_the_run_undoes_it() -> None:
    findings = with_policies_of(
        stats(version="Pulsar-Go-v0.19.0")(view(prepares=True)), green={"deduplicationEnabled": True}
    )
    blue, green = findings.blue.snapshot, findings.green.snapshot
    assert "deduplicationEnabled" in {change.field for change in plan_changes(blue, green).changes}
    (finding,) = [finding for finding in check(findings) if finding.id == "client-repeats"]
    assert "for the namespace on blue" in finding.remedy


def test_all_faults_are_told_at_once_and_blockers_first() -> None:
    state = view()
    expected = set()
    for name, spoil in FAULTS:
        if name in ("migration-check-off", "redirect-to-another-cluster", "certificate-not-trusted", "green-in-use"):
            expected.add(name)
            state = spoil(state)
    findings = check(stats(version=PYTHON)(state))
    assert {finding.id for finding in findings} == {*expected, "client-may-hang"}
    assert [finding.severity for finding in findings][-1] is Severity.WARNING
    assert count_line(findings) == "4 blockers, 1 warning"
    table = findings_markdown(findings)
    assert table.index("green-in-use") < table.index("client-may-hang")
    assert "**Do (application's team):**" in table


def test_a_finding_survives_json_with_its_owner() -> None:
    for finding in check(stats(**IDLE)(view())):
        assert Finding.from_json(finding.to_json()) == finding


def test_every_gate_is_evaluated_once() -> None:
    assert len(set(GATE_CHECKS)) == len(GATE_CHECKS)


def test_clients_are_told_by_name_address_and_version() -> None:
    (findings,) = check(stats(**subscription("billing", *["Pulsar-CPP-v4.2.0"] * 5))(view()))
    assert findings.evidence == (
        '5 clients Pulsar-CPP-v4.2.0: consumer "billing-0" at 10.0.0.2:5600, consumer "billing-1" at 10.0.0.2:5601, '
        'consumer "billing-2" at 10.0.0.2:5602, and 2 more'
    )


def test_a_namespace_without_anything_in_it_is_judged_too() -> None:
    empty = NamespaceFacts(namespace=NAME, blue={}, green={}, topics={}, partitions=())
    assert "namespace-missing" not in ids(with_survey(view(), namespaces=(empty,)))


def test_the_page_names_every_gate_as_the_code_has_it() -> None:
    page = (Path(__file__).parents[3] / "docs" / "migration_gates.md").read_text()
    assert with_gates(page) == page
    assert all(f"| `{id_}` |" in page for id_ in GATES)


def test_two_killed_parses_in_a_row_are_what_the_threshold_must_survive() -> None:
    assert ids(parsed_with(timeout=100, interval=30, stale_after=260)(view())) == {"dag-may-become-stale"}
    assert ids(parsed_with(timeout=100, interval=30, stale_after=261)(view())) == set()


def test_a_watch_that_restores_nothing_watches_no_cluster(tmp_path: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    assert overrides_watch(ledger) == OverridesWatch()
    for number, restores in enumerate((False, True)):
        conf = {"clusters": ["pulsar_blue"], "restore": restores}
        ledger.start_run(f"watch_overrides/{number}", "watch_overrides", conf)
        assert overrides_watch(ledger).clusters == (("pulsar_blue",) if restores else ())


def test_a_watch_that_is_only_paused_is_only_unpaused() -> None:
    paused, elsewhere = (check(watched(120, *of)(view()))[0] for of in (("pulsar_blue", "pulsar_green"), ("other",)))
    assert paused.evidence == "its last run began 2.0 h ago"
    assert paused.remedy.startswith("run: airflow dags unpause watch_overrides")
    assert elsewhere.remedy.startswith('add "pulsar_blue", "pulsar_green" to `clusters` in PULSAR_FLEET_WATCH')


def test_the_warning_about_a_stale_dag_names_the_settings_and_the_remedy() -> None:
    (finding,) = check(parsed_with(timeout=50, interval=30, stale_after=50)(view()))
    assert finding.severity is Severity.WARNING
    assert finding.evidence == (
        "stale_dag_threshold = 50 s, min_file_process_interval = 30 s, dag_file_processor_timeout = 50 s"
    )
    assert "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD to more than 160" in finding.remedy


@pytest.mark.parametrize("file", ["docker/compose.yaml", "plugins/pulsar_sandbox/demo/stack.py", "README.md"])
def test_the_settings_that_we_ship_and_advise_keep_the_dag(file: str) -> None:
    text = (Path(__file__).parents[3] / file).read_text()
    values = {name: int(value) for name, value in re.findall(r'AIRFLOW__DAG_PROCESSOR__(\w+)"?(?:: |=)"?(\d+)', text)}
    settings = {
        "timeout": values["DAG_FILE_PROCESSOR_TIMEOUT"],
        "interval": values.get("MIN_FILE_PROCESS_INTERVAL", 30),
        "stale_after": values["STALE_DAG_THRESHOLD"],
    }
    assert ids(parsed_with(**settings)(view())) == set()


def test_the_headline_says_what_was_compared() -> None:
    reported = replace(view().survey, calls=61, seconds=4.2)
    assert reported.headline() == (
        "blue (4.2.4, 2 brokers) → green (4.2.4, 2 brokers): 1 namespace, 2 topics compared in 4 s, 61 calls"
    )


@pytest.mark.parametrize("in_log", [True, False])
def test_compacted_values_in_a_failback_are_to_be_written_again(in_log: bool) -> None:
    """What came by replication is not replicated back, so a failback by redirect has no other strategy."""
    compacted = with_facts(view(), compacted={TOPIC: CompactedView(10, in_log=in_log)})
    remedy = by_id(of_failback(compacted), "compacted-values-stay").remedy
    assert "write each once more when its clients are on green" in remedy
    assert "replicate_then_switch" not in remedy
