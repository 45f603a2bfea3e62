"""What the gates and the approval text need to know of one namespace, on both clusters (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Self

from pulsar_fleet.cluster.admin.partial_reads import Note
from pulsar_fleet.cluster.document import Document, Rounded
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import effective_value
from pulsar_fleet.cluster.policies.model import Scope, TopicPolicy
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, topic_comparable
from pulsar_fleet.cluster.statistics import ConnectedClient, Role, TopicStats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.snapshot.inventory import members, topics_in
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.verification.bounds.compaction import compacted_entries

_RETENTION = TOPIC_BY_FIELD["retentionPolicies"]


def retained_by(policies: EffectivePolicies) -> dict[str, str]:
    """Namespace → `topic …`, `the namespace` or `the brokers' default`: the first that retains messages; or nothing."""
    return {namespace: _first(policies, namespace) for namespace in policies.namespaces}


def _first(policies: EffectivePolicies, namespace: str) -> str:
    for topic in policies.topics[namespace]:
        if any(map(_retains, policies.values(_RETENTION, namespace, topic))):
            return f"topic {topic}"
    if any(map(_retains, policies.values(_RETENTION, namespace))):
        return (
            "the namespace" if _RETENTION.namespace_field in policies.namespaces[namespace] else "the brokers' default"
        )
    return ""


def _retains(retention: Json) -> bool:
    return bool(retention and (retention.get("retentionTimeInMinutes") or retention.get("retentionSizeInMB")))


class Absence(StrEnum):
    """Why a partition has no statistics: none of these means a backlog of 0."""

    UNLOADED = "unloaded"
    """The broker answers 500 "already migrated": unloaded under the flag, it cannot be loaded again."""

    UNLISTED = "unlisted"
    """No broker lists it among its loaded topics."""

    GONE = "gone"
    """It does not exist."""

    UNREACHABLE = "unreachable"
    """No broker answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState(Document):
    """The state of a partition on one cluster.

    :param at: when it was read, seconds since 1970.
    :param close: read from its own statistics; else from its broker's list, which may be a minute old.
    :param backlog: subscription → unread entries.
    :param unsent: unreplicated entries, over all clusters that it replicates to.
    :param stored: bytes, acknowledged or not.
    :param broker: `host:port` of its broker, empty if unknown; `bundle` likewise.
    """

    at: Annotated[float, Rounded(3)]
    close: bool
    absence: Absence | None = None
    backlog: Mapping[str, int] = field(default_factory=dict)
    unsent: int = 0
    clients: tuple[ConnectedClient, ...] = ()
    stored: int = 0
    broker: str = ""
    bundle: str = ""

    @classmethod
    def of(cls, stats: TopicStats, *, at: float, close: bool, broker: str = "", bundle: str = "") -> Self:
        """Read its statistics."""
        return cls(
            at=at,
            close=close,
            backlog={name: subscription.backlog for name, subscription in stats.subscriptions.items()},
            unsent=sum(stats.replication_backlog.values()),
            clients=stats.clients,
            stored=stats.stored_bytes,
            broker=broker,
            bundle=bundle,
        )

    @property
    def is_gone(self) -> bool:
        """Whether its broker answered that it does not exist."""
        return self.close and self.absence is Absence.GONE

    @property
    def producers(self) -> int:
        """Connected producers."""
        return sum(client.role is Role.PRODUCER for client in self.clients)

    def consumers(self, subscription: str) -> int:
        """Connected consumers of one subscription."""
        return sum(client.role is not Role.PRODUCER and client.subscription == subscription for client in self.clients)


PartitionStates = Mapping[TopicName, PartitionState]


def read_loaded(
    broker: str, text: str, selected: Mapping[NamespaceName, frozenset[TopicName]], at: float
) -> dict[TopicName, PartitionState]:
    """The states of the selected topics in a broker's list of loaded topics; parses one namespace at a time."""
    names = {str(name): topics for name, topics in selected.items()}
    states: dict[TopicName, PartitionState] = {}
    for namespace, bundles in members(text):
        if namespace in names:
            for bundle, topic, document in topics_in(bundles):
                if topic in names[namespace]:
                    stats = TopicStats.of(topic, document)
                    states[topic] = PartitionState.of(stats, at=at, close=False, broker=broker, bundle=bundle)
    return states


class EffectivePolicies:
    """A policy of a topic is effective before the namespace's, and that before the default of the broker.

    :ivar namespaces: namespace → its comparable policies.
    :ivar topics: namespace → topic with policies of its own → these by their scope.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.namespaces = {state.name: comparable(state.policies, snapshot.cluster) for state in snapshot.namespaces}
        self.topics: defaultdict[str, dict[str, dict[Scope, JsonObject]]] = defaultdict(dict)
        for row in snapshot.topic_policies:
            inside = self.topics[str(TopicName.parse(row.topic).namespace)]
            inside.setdefault(row.topic, {})[Scope(row.scope)] = topic_comparable(row.policies)
        self._configurations: list[Mapping[str, Json]] = [broker.configuration for broker in snapshot.brokers] or [{}]

    def values(self, policy: TopicPolicy, namespace: str, topic: str = "") -> Iterator[Json]:
        """The value by the settings of each broker, or without any where none could be read.

        :param topic: empty for the topics without policies of their own.
        """
        scopes = self.topics[namespace].get(topic, {})
        for configuration in self._configurations:
            yield effective_value(
                policy,
                local=scopes.get(Scope.LOCAL, {}),
                shared=scopes.get(Scope.GLOBAL, {}),
                namespace=self.namespaces.get(namespace, {}),
                configuration=configuration,
            )


_THRESHOLD = TOPIC_BY_FIELD["compactionThreshold"]


@dataclass(frozen=True, slots=True)
class CompactedView:
    """The compacted view of one plain topic or partition.

    :param entries: of its compacted ledger; of its log, where the broker compacts it and has not yet.
    :param in_log: whether the log still has all of them, so that a copy of the log is enough.
    """

    entries: int
    in_log: bool


def compacting_topics(policies: EffectivePolicies, topics: Iterable[TopicName]) -> frozenset[TopicName]:
    """Those of the topics that some broker compacts by itself."""

    def is_compacted(topic: TopicName) -> bool:
        thresholds = policies.values(_THRESHOLD, str(topic.namespace), str(topic))
        return any(int(threshold or 0) > 0 for threshold in thresholds)

    return frozenset(filter(is_compacted, topics))


def compacted_view(internal_stats: JsonObject, first: Position | None, *, compacting: bool) -> CompactedView | None:
    """The view of a partition from its `internalStats`; None without a value.

    :param first: where a reader of the compacted topic begins.
    :param compacting: whether the broker compacts the topic by itself.
    """
    log, entries = Ledgers.of(internal_stats), compacted_entries(internal_stats)
    if entries:
        return CompactedView(entries, first is None or (bool(len(log)) and log.at(0) <= first))
    return CompactedView(len(log), in_log=True) if compacting and len(log) else None


ConnectedClients = Mapping[TopicName, tuple[ConnectedClient, ...]]
"""Partition → its clients."""


@dataclass(frozen=True, slots=True)
class Uncopied:
    """Entries of blue that are older than the oldest copy on green.

    :param entries: their number.
    :param unread: subscription → how many of them it has not read.
    """

    entries: int
    unread: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFacts:
    """One namespace on both clusters.

    :param blue: policies document on blue; None if it does not exist.
    :param green: the same on green.
    :param topics: topic on blue → partition count, 0 for a plain topic; without system topics.
    :param partitions: clients and backlog of every partition and plain topic on blue.
    :param unread: topics of blue whose statistics could not be read, each with the reason.
    :param functions: functions, sources and sinks of the namespace on blue, `sink "archive"`.
    :param green_clients: client version → number of clients that use the namespace on green already.
    :param links: topic → the other clusters to which blue should replicate it.
    :param retained: what keeps read messages on blue, as `retained_by` tells it.
    :param ended: partitions that their owner has terminated on blue.
    :param shadows: shadow topic on blue → its source.
    :param scalable: scalable topics on blue, `topic://…`.
    :param compacted: partition on blue → what only readers of the compacted topic get.
    :param transacted: partitions in which transactions were used at any time.
    :param unread_copies: partitions of which it is not known what green lacks, as `unread`.
    :param uncopied: partition that blue replicates to green already → what green lacks of it.
    :param led_to_green: who has led its applications to green, as a clause; empty where no document does.
    :param led_since: when, in ms since 1970.
    :param led_to_blue: the groups of applications that a document leads to blue.
    """

    namespace: NamespaceName
    blue: JsonObject | None
    green: JsonObject | None
    topics: Mapping[TopicName, int]
    partitions: tuple[TopicStats, ...]
    unread: tuple[Note, ...] = ()
    functions: tuple[str, ...] = ()
    green_clients: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[TopicName, frozenset[str]] = field(default_factory=dict)
    retained: str = ""
    ended: tuple[TopicName, ...] = ()
    shadows: Mapping[TopicName, str] = field(default_factory=dict)
    scalable: tuple[str, ...] = ()
    compacted: Mapping[TopicName, CompactedView] = field(default_factory=dict)
    transacted: frozenset[TopicName] = frozenset()
    unread_copies: tuple[Note, ...] = ()
    uncopied: Mapping[TopicName, Uncopied] = field(default_factory=dict)
    led_to_green: str = ""
    led_since: int = 0
    led_to_blue: tuple[str, ...] = ()

    @property
    def clients(self) -> Iterator[tuple[TopicName, ConnectedClient]]:
        """Every client that is connected on blue, with its partition."""
        return ((partition.topic, client) for partition in self.partitions for client in partition.clients)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedNamespace:
    """A namespace on blue that is flagged and does not move with this run.

    :param terminated: whether blue has terminated any of its topics; None if that could not be read.
    :param lacking: what green lacks of it: the namespace, or topics.
    :param moved_by: the newest run in the ledger that cut it over; empty if the ledger has none.
    :param is_on_green: that run moved it to green, or clients are connected to it on green.
    """

    name: str
    terminated: bool | None
    lacking: tuple[str, ...] = ()
    moved_by: str = ""
    is_on_green: bool = False

    @property
    def was_moved(self) -> bool:
        """Whether its clients were redirected: without the flag they would return to terminated topics."""
        return bool(self.terminated or self.moved_by)
