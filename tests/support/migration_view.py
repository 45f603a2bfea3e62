"""A migration as the gates see it, on pairs of clusters that go together; each fault of a test spoils one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.snapshots import EVENTS, ORDERS, Clusters, clean_pair, full_pair, with_settings

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.preflight.view import AddressProbe, ClusterFacts, Expectations, RedirectProbe, Survey, View
from pulsar_fleet.snapshot.model import Snapshot

NAME = NamespaceName.parse(ORDERS)
TOPIC = TopicName.parse(EVENTS)
PLAIN = {
    "clusterMigrationCheckDurationSeconds": "1",
    "clusterMigrationAutoResourceCreation": "false",
    "brokerServicePort": "Optional[6650]",
    "brokerServicePortTls": "Optional.empty",
    "webServicePort": "Optional[8080]",
    "webServicePortTls": "",
    "managedLedgerMaxEntriesPerLedger": "50000",
    "managedLedgerMaxSizePerLedgerMbytes": "2048",
    "managedLedgerMaxLedgerRolloverTimeMinutes": "240",
}
ADVERTISED = frozenset({"pulsar://green-0.example:6650", "http://green-0.example:8080"})
REDIRECT = {
    "serviceUrl": "http://green.example:8080",
    "serviceUrlTls": "https://green.example:8443",
    "brokerServiceUrl": "pulsar://green.example:6650",
    "brokerServiceUrlTls": "pulsar+ssl://green.example:6651",
}
PROBES = (
    AddressProbe(key="serviceUrl", url=REDIRECT["serviceUrl"], answered="http://green-0.example:8080"),
    AddressProbe(key="serviceUrlTls", url=REDIRECT["serviceUrlTls"], placeholder=True, error="refused"),
    AddressProbe(key="brokerServiceUrl", url=REDIRECT["brokerServiceUrl"], answered="pulsar://green-0.example:6650"),
    AddressProbe(key="brokerServiceUrlTls", url=REDIRECT["brokerServiceUrlTls"], placeholder=True, error="refused"),
)


def view(pair: Clusters | None = None, *, prepares: bool = False, strategy: Strategy = Strategy.REDIRECT) -> View:
    """Everything of `pair` moves; a client of a kind that follows is on each partition, and nobody on green."""
    clusters = pair or full_pair()
    blue, green = (_whole(with_settings(side, **PLAIN)) for side in (clusters.source, clusters.target))
    namespaces = tuple(_facts(NamespaceName.parse(state.name), blue, green) for state in blue.namespaces)
    return View(
        survey=Survey(
            blue=ClusterFacts(snapshot=blue, redirect={}),
            green=ClusterFacts(snapshot=green, redirect={}),
            redirect_probe=RedirectProbe(document=REDIRECT, probes=PROBES, advertised=ADVERTISED),
            namespaces=namespaces,
        ),
        strategies={facts.namespace: strategy for facts in namespaces},
        connections=("pulsar_blue", "pulsar_green"),
        expected=Expectations(prepares_green=prepares),
    )


def clean_view(seed: int) -> View:
    """A pair of clusters of any shape, with or without what the run will prepare on green."""
    return view(clean_pair(seed), prepares=True)


def with_blue(base: View, **changes: Any) -> View:
    """The same with other facts about blue."""
    return replace(base, survey=replace(base.survey, blue=replace(base.survey.blue, **changes)))


def with_green(base: View, **changes: Any) -> View:
    """The same with other facts about green."""
    return replace(base, survey=replace(base.survey, green=replace(base.survey.green, **changes)))


def with_survey(base: View, **changes: Any) -> View:
    """The same with something else read."""
    return replace(base, survey=replace(base.survey, **changes))


def with_redirect_probe(base: View, **changes: Any) -> View:
    """The same with another way to green."""
    return with_survey(base, redirect_probe=replace(base.survey.redirect_probe, **changes))


def with_probe(base: View, key: str, **changes: Any) -> View:
    """The same with another answer at one address of the redirect."""
    probes = tuple(
        replace(probe, **changes) if probe.key == key else probe for probe in base.survey.redirect_probe.probes
    )
    return with_redirect_probe(base, probes=probes)


def with_facts(base: View, **changes: Any) -> View:
    """The same with other facts about each namespace that moves."""
    return with_survey(base, namespaces=tuple(replace(facts, **changes) for facts in base.survey.namespaces))


def with_policies_of(base: View, *, blue: dict[str, Any] | None = None, green: dict[str, Any] | None = None) -> View:
    """The same with other policies on one side or both, in its snapshot too."""
    for key, changes in (("blue", blue), ("green", green)):
        side = getattr(base.survey, key)
        namespaces = tuple(
            replace(state, policies={**state.policies, **(changes or {})}) for state in side.snapshot.namespaces
        )
        side = replace(side, snapshot=replace(side.snapshot, namespaces=namespaces))
        base = with_survey(base, **{key: side})
        base = with_facts(base, **{key: namespaces[0].policies})
    return base


def partition(topic: TopicName = TOPIC, version: str = "Pulsar-Java-v4.2.4", **stats: Any) -> TopicStats:
    """A partition with one producer, and what else its statistics say."""
    client = {"clientVersion": version, "producerName": "checkout", "address": "/10.0.0.1:5512"}
    return TopicStats.of(topic, {"publishers": [client], "subscriptions": {}, **stats})


def subscription(name: str = "billing", *versions: str, **stats: Any) -> dict[str, Any]:
    """The statistics of a subscription with a consumer of each of these versions."""
    consumers = [
        {"clientVersion": version, "consumerName": f"{name}-{index}", "address": f"/10.0.0.2:{5600 + index}"}
        for index, version in enumerate(versions)
    ]
    return {"subscriptions": {name: {"type": "Shared", "msgBacklog": 0, "consumers": consumers, **stats}}}


def _whole(snapshot: Snapshot) -> Snapshot:
    """The same with each subscription on every partition of its topic."""
    counts = {state.name: state.partitions for state in snapshot.topics}
    spread = (
        replace(state, partition=str(part))
        for state in snapshot.subscriptions
        for part in TopicName.parse(state.topic).partitions(counts[state.topic])
    )
    return replace(snapshot, subscriptions=tuple(spread))


def _facts(name: NamespaceName, blue: Snapshot, green: Snapshot) -> NamespaceFacts:
    documents = [{state.name: state.policies for state in side.namespaces}.get(str(name)) for side in (blue, green)]
    counts = {TopicName.parse(state.name): state.partitions for state in blue.topics}
    topics = {topic: count for topic, count in counts.items() if topic.namespace == name}
    partitions = [part for topic, count in topics.items() for part in topic.partitions(count)]
    linked = {
        cluster: {"connected": True, "replicationBacklog": 0, "outboundConnection": "x"}
        for cluster in (documents[0] or {}).get("replication_clusters") or ()
        if cluster != blue.cluster
    }
    return NamespaceFacts(
        namespace=name,
        blue=documents[0],
        green=documents[1],
        topics=topics,
        partitions=tuple(partition(part, replication=linked) for part in partitions),
    )
