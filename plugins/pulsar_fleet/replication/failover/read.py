"""Read topics of both clusters: cursors and statistics over HTTP, stored entries over the binary protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.polling import all_ended
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.messages.engines.base import Engine
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EngineName, TopicBounds, cut
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, replicated_up_to, subscription_cursors
from pulsar_fleet.replication.failover.forecast import TopicLoad
from pulsar_fleet.replication.failover.topic_copy import NOWHERE, ClusterTopic, ListedEntry, Place, TopicCopy

MOST_ENTRIES = 500_000
"""The most entries to read of one topic and cluster, at about 25 µs of CPU each (measured with 60,000)."""

_MOST_KEPT, _KEPT_OF_TOPIC = 500_000, 5_000
_FURTHER, _BEFORE = 1_000, 200
_GROWTH = 3
_OTHER = {Place.FROM: Place.TO, Place.TO: Place.FROM}


class TooMany(Exception):
    """More entries would have to be read than `MOST_ENTRIES`; the message says how many."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """The entries [begin, end) of a topic, in the numbers of these ledgers."""

    ledgers: Ledgers
    begin: int
    end: int
    entries: Sequence[ListedEntry]

    def renumbered(self, now: Ledgers) -> _Listed | None:
        """The same in the numbers of now, without what was removed; None where they are not entries of now."""
        if not len(now) or self.begin == self.end:
            return None
        removed = self.ledgers.index_after(now.at(0)) - 1
        begin, end = max(0, self.begin - removed), self.end - removed
        if removed < 0 or not begin < end <= len(now) or now.at(end - 1) != self.ledgers.at(self.end - 1):
            return None
        if not removed:
            return replace(self, ledgers=now)
        kept = (replace(entry, number=entry.number - removed) for entry in self.entries)
        return _Listed(now, begin, end, [entry for entry in kept if entry.number >= begin])


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of a failover.

    :param name: its name in the configuration of its brokers.
    :param engine: reads its stored entries; not thread-safe.
    """

    name: str
    admin: AdminClient
    engine: Engine


class TopicReader:
    """Reads single topics, plain or partitions, of both clusters. Consumes nothing and changes nothing.

    What it has read lately of a topic it does not read again, so that a second look takes only what came since.

    :param clusters: `from` and `to`.
    """

    def __init__(self, clusters: Mapping[Place, Cluster]) -> None:
        self._clusters = clusters
        self._reading = {place: asyncio.Lock() for place in Place}
        self._listed: dict[tuple[Place, TopicName], _Listed] = {}
        self._kept = 0

    async def topics(self, topic: TopicName) -> tuple[ClusterTopic, ClusterTopic]:
        """The topic on `from` and on `to`; six calls. **Loads the topic.**

        The cursors of `to` are read before those of `from`: an acknowledgement that replication passes on in between
        must not look as if `to` were ahead. The entries are read after that, those of `from` last: it has the original
        of each copy, or has removed it.
        """
        to_cursors = await self._topic(Place.TO, topic)
        from_cursors = await self._topic(Place.FROM, topic)
        on_to = await self._grown(Place.TO, topic, to_cursors)
        return await self._grown(Place.FROM, topic, from_cursors), on_to

    async def _grown(self, place: Place, topic: TopicName, earlier: ClusterTopic) -> ClusterTopic:
        """The same cursors with the entries of now; what came since is unread by all."""
        if earlier.stats is None:
            return earlier
        internal = await self._clusters[place].admin.internal_stats(topic)
        ledgers = Ledgers.of(internal)
        cursors = {
            name: SubscriptionCursor.of(ledgers, len(ledgers), cursor.cursor, earlier.stats.subscriptions[name])
            for name, cursor in earlier.cursors.items()
        }
        replicated = replicated_up_to(ledgers, internal, self._clusters[_OTHER[place]].name)
        if place is Place.FROM and None not in (replicated, earlier.replicated):
            # What `to` confirmed since, it may not have had when its entries were read. A topic that was loaded for
            # that gets its replicator a moment later.
            replicated = _renumbered(earlier.replicated or 0, earlier.ledgers, ledgers)
        later = len(ledgers)
        if before := len(earlier.ledgers):
            later -= ledgers.index_after(earlier.ledgers.at(before - 1))
        load, last = TopicLoad.of(internal), Position.parse(internal["lastConfirmedEntry"])
        return replace(
            earlier, ledgers=ledgers, cursors=cursors, replicated=replicated, load=load, later=later, last=last
        )

    async def copy(
        self, topic: TopicName, on_from: ClusterTopic, on_to: ClusterTopic, *, unsent: bool = False
    ) -> TopicCopy:
        """The entries of both clusters from the first unread ones on, and which correspond.

        Reads further back where an unread entry may be one that the other cluster has read already.

        :param unsent: of `to` also what `from` does not have yet, whoever has read it there.
        :raises TooMany: it would take more than `MOST_ENTRIES` of one cluster.
        """
        sides = {Place.FROM: on_from, Place.TO: on_to}
        begins = {Place.FROM: on_from.first_unread, Place.TO: on_to.first_unread}
        if unsent:
            # Some that both have: what a third cluster still sends lies behind them.
            begins = {place: max(0, begin - _BEFORE) for place, begin in begins.items()}
        if (unsent or on_from.cursors.keys() - on_to.cursors.keys()) and on_to.replicated is not None:
            # A subscription that is created must get what `from` does not have yet.
            begins[Place.TO] = min(begins[Place.TO], on_to.replicated)
        ends = {place: len(topic.ledgers) for place, topic in sides.items()}
        for place in Place:
            _require_few(ends[place] - begins[place])
        read = (self._entries(place, topic, sides, begins[place], ends[place]) for place in Place)
        # Both end before one fails: no thread reads on when the connections are closed.
        entries = dict(zip(Place, await all_ended(*read), strict=True))
        # What one of both has written, and `from` has before its first unread entry, all subscriptions have read there.
        both = ("", self._clusters[Place.FROM].name)
        settled = {Place.FROM: (), Place.TO: both if unsent else ()}
        while True:
            copy = TopicCopy.of(entries[Place.FROM], entries[Place.TO])
            back = [_OTHER[place] for place in Place if copy.looks_further_back(place, sides[place], settled[place])]
            back = [place for place in back if begins[place]]
            if not back:
                return copy
            for place in back:
                end, length = begins[place], ends[place] - begins[place]
                begins[place] = max(0, end - max(_FURTHER, _GROWTH * length))
                earlier = await self._entries(place, topic, sides, begins[place], end)
                entries[place] = [*earlier, *entries[place]]

    async def _entries(
        self, place: Place, topic: TopicName, sides: Mapping[Place, ClusterTopic], begin: int, end: int
    ) -> list[ListedEntry]:
        ledgers = sides[place].ledgers
        _require_few(len(ledgers) - begin)
        async with self._reading[place]:
            before = self._listed.get((place, topic))
            known = before.renumbered(ledgers) if before else None
            if known and known.begin > end:
                # What is newer stays known.
                return list(await self._read(place, topic, ledgers, begin, end))
            if known is None or known.end < begin:
                known = _Listed(ledgers, begin, begin, ())
            first = await self._read(place, topic, ledgers, begin, min(known.begin, end))
            later = await self._read(place, topic, ledgers, max(known.end, begin), end)
            every = [*first, *known.entries, *later]
            self._keep(place, topic, _Listed(ledgers, min(begin, known.begin), max(end, known.end), every))
        return [entry for entry in every if begin <= entry.number < end]

    async def _read(
        self, place: Place, topic: TopicName, ledgers: Ledgers, begin: int, end: int
    ) -> Sequence[ListedEntry]:
        if begin >= end:
            return ()
        return await asyncio.to_thread(list_entries, self._clusters[place].engine, topic, ledgers, begin, end)

    def _keep(self, place: Place, topic: TopicName, listed: _Listed) -> None:
        if before := self._listed.pop((place, topic), None):
            self._kept -= len(before.entries)
        begin = max(listed.begin, listed.end - _KEPT_OF_TOPIC)
        kept = [entry for entry in listed.entries if entry.number >= begin]
        if self._kept + len(kept) <= _MOST_KEPT:
            self._kept += len(kept)
            self._listed[place, topic] = _Listed(listed.ledgers, begin, listed.end, kept)

    async def _topic(self, place: Place, topic: TopicName) -> ClusterTopic:
        return await read_topic(self._clusters[place].admin, topic, self._clusters[_OTHER[place]].name)


def _renumbered(number: int, before: Ledgers, now: Ledgers) -> int:
    """A number of first entries in the ledgers of now."""
    return now.index_after(before.at(number - 1)) if number else 0


async def read_topic(admin: AdminClient, topic: TopicName, other: str) -> ClusterTopic:
    """One topic of one cluster: two calls; `NOWHERE` if the cluster has no such topic. **Loads the topic.**

    :param other: the other cluster, to which it may be replicated.
    """
    try:
        document, internal = await asyncio.gather(admin.stats(topic, precise=False), admin.internal_stats(topic))
    except NotFound:
        return NOWHERE
    stats, ledgers = TopicStats.of(topic, document), Ledgers.of(internal)
    return ClusterTopic(
        ledgers=ledgers,
        cursors=subscription_cursors(ledgers, stats, internal),
        stats=stats,
        replicated=replicated_up_to(ledgers, internal, other),
        load=TopicLoad.of(internal),
        last=Position.parse(internal["lastConfirmedEntry"]),
    )


def list_entries(
    engine: Engine, topic: TopicName, ledgers: Ledgers, begin: int, end: int | None = None
) -> list[ListedEntry]:
    """The stored entries [begin, end), without markers. Blocks; an engine serves one thread at a time.

    :param end: None: up to the last one.
    :raises TooMany: there are more than `MOST_ENTRIES`.
    """
    bounds = TopicBounds(str(topic), ledgers, begin, len(ledgers) if end is None else end)
    _require_few(len(bounds))
    return [
        ListedEntry(ledgers.index_after(entry.position) - 1, entry.messages, entry.origin, entry.digest)
        for entry_range in cut(bounds, pair=0, publish_time=True, engine=EngineName.ENTRY)
        for entries in engine.read(entry_range)
        for entry in entries
    ]


def _require_few(entries: int) -> None:
    if entries > MOST_ENTRIES:
        raise TooMany(
            f"{entries:,} entries would have to be read to count their messages, and at most {MOST_ENTRIES:,} are; "
            "let the subscription with the largest backlog catch up"
        )
