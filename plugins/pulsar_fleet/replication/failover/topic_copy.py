"""One topic on both clusters: which entry of one is which entry of the other, in either direction (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics import SubscriptionStats, TopicStats
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.ranges import EARLIEST
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.replication.failover.forecast import TopicLoad
from pulsar_fleet.verification.subscriptions.correspondence import NONE, ByContent, Listing


class Place(StrEnum):
    """The two clusters of a failover."""

    FROM = "from"
    """The cluster that applications leave."""
    TO = "to"
    """The cluster that they connect to."""


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """A stored entry that is no marker.

    :param number: its number in the topic.
    :param messages: the messages in it.
    :param origin: the cluster whose replicator wrote it; empty for what a producer of this cluster wrote.
    :param digest: equal for an entry and its copies.
    """

    number: int
    messages: int
    origin: str
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTopic:
    """One topic, plain or a partition, on one cluster.

    :param cursors: durable subscriptions of applications, by name.
    :param stats: its statistics; None if this cluster has no such topic.
    :param replicated: number of its first entries that the other cluster has confirmed; None without a replicator.
    :param load: by which it counts what it delivers.
    :param later: number of its last entries that came after the cursors were read: the other cluster may have been read
        before they came.
    :param last: its last confirmed entry.
    """

    ledgers: Ledgers
    cursors: Mapping[str, SubscriptionCursor]
    stats: TopicStats | None
    replicated: int | None = None
    load: TopicLoad = field(default_factory=TopicLoad)
    later: int = 0
    last: Position = EARLIEST

    @property
    def exists(self) -> bool:
        """Whether this cluster has the topic."""
        return self.stats is not None

    def delivered(self, subscription: str) -> int:
        """Messages that the subscription's consumers got since the topic was loaded."""
        return stats.delivered if (stats := self._stats(subscription)) else 0

    @property
    def settled(self) -> Intervals:
        """The entries that existed when the cursors were read."""
        return Intervals.of([(0, len(self.ledgers) - self.later)])

    @property
    def unread(self) -> Intervals:
        """The entries that at least one subscription has not read."""
        return Intervals.of(run for cursor in self.cursors.values() for run in cursor.unread.runs)

    @property
    def first_unread(self) -> int:
        """The first entry that a subscription has not read; the number of entries if all have read everything."""
        first = self.unread.first
        return len(self.ledgers) if first is None else first

    def _stats(self, subscription: str) -> SubscriptionStats | None:
        return self.stats.subscriptions.get(subscription) if self.stats else None


NOWHERE = ClusterTopic(ledgers=Ledgers(()), cursors={}, stats=None)


@dataclass(frozen=True, slots=True)
class TopicCopy:
    """The entries of one topic on both clusters, from some entry up to the end, and which correspond.

    Replication keeps entries whole and their order, those of each producing cluster for themselves. Where both clusters
    have producers, each interleaves its own entries with the copies, and stores markers of its own.

    :param entries: the listed entries of each cluster, ascending.
    :param partners: for each cluster: entry number → number of the same entry on the other cluster.
    """

    entries: Mapping[Place, Sequence[ListedEntry]]
    partners: Mapping[Place, Mapping[int, int]]

    @classmethod
    def of(cls, on_from: Sequence[ListedEntry], on_to: Sequence[ListedEntry]) -> TopicCopy:
        """Match the entries by their content."""
        import numpy as np

        listings = (
            Listing([entry.digest for entry in entries], np.array([entry.number for entry in entries], dtype=np.int64))
            for entries in (on_from, on_to)
        )
        matched = ByContent.of(*listings)
        there = {
            on_from[place].number: on_to[partner].number
            for place, partner in enumerate(matched.in_target.tolist())
            if partner != NONE
        }
        return cls({Place.FROM: on_from, Place.TO: on_to}, {Place.FROM: there, Place.TO: _inverse(there)})

    def first_shared(self) -> Mapping[str, int]:
        """Origin → the first listed entry of `to` from there that `from` has too."""
        first: dict[str, int] = {}
        for entry in self.entries[Place.TO]:
            if entry.number in self.partners[Place.TO]:
                first.setdefault(entry.origin, entry.number)
        return first

    def last_of_third(self) -> Mapping[str, int]:
        """Origin that is none of both clusters → the last listed entry of `from` from there that `to` has too."""
        own = {entry.number for entry in self.entries[Place.TO] if not entry.origin}
        partners = self.partners[Place.FROM]
        return {
            entry.origin: entry.number
            for entry in self.entries[Place.FROM]
            if entry.origin and entry.number in partners and partners[entry.number] not in own
        }

    def looks_further_back(self, place: Place, topic: ClusterTopic, without: Collection[str] = ()) -> bool:
        """Whether the other cluster may have an earlier entry than listed that is an unread entry of `place`.

        Copies keep their order, so this is so only before the first entry of the same origin that both have.

        :param without: origins of which earlier entries are not asked for.
        """
        partners, unread, settled = self.partners[place], topic.unread, topic.settled
        matched: set[str] = set()
        for entry in self.entries[place]:
            if entry.number in partners:
                matched.add(entry.origin)
            elif entry.origin in matched or entry.origin in without or not _may_be_there(entry, topic):
                continue
            elif entry.number in unread and entry.number in settled:
                return True
        return False

    def unread(self, place: Place, unread: Intervals) -> Iterator[tuple[ListedEntry, int | None]]:
        """The listed entries of a cluster among `unread`, each with its partner."""
        partners = self.partners[place]
        return ((entry, partners.get(entry.number)) for entry in self.entries[place] if entry.number in unread)


def _may_be_there(entry: ListedEntry, topic: ClusterTopic) -> bool:
    return bool(entry.origin) or entry.number < (topic.replicated or 0)


def _inverse(partners: Mapping[int, int]) -> dict[int, int]:
    return {partner: number for number, partner in partners.items()}
