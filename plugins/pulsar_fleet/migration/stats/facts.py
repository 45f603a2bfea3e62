"""What the gates and the approval text need to know of one namespace, on both clusters (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.read_problems import Note
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import ConnectedClient, TopicStats
from pulsar_fleet.migration.stats.compaction import CompactedView


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
    :param uncopied: partition that blue replicates to green already → what green lacks of it.
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
    uncopied: Mapping[TopicName, Uncopied] = field(default_factory=dict)

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
