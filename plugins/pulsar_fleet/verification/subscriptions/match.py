"""Matching the entries of a copy with those of the source: by the source positions of a few entries if they match one
to one, else by reading the messages that any subscription has not read."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.engines.base import Engine
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.ranges import TopicBounds, cut
from pulsar_fleet.verification.request import Pair
from pulsar_fleet.verification.subscriptions.correspondence import ByContent, Correspondence, Listing, OneToOne

POSITION_LOOKUPS = 16
"""Entries of a copy whose source positions are read before all entries are assumed to match one to one."""

MOST_MESSAGES = 200_000
"""The most messages to read of one topic and cluster if entries do not match one to one; about 10 µs of CPU each."""

MOST_CALLS = 500
"""The most entries of a copy without a partner whose source position is read from the broker."""


class Unmatchable(Exception):
    """The entries of the two topics cannot be matched; the message says why."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Entries that any subscription of a topic has not read, by their numbers in the frozen topics."""

    source: Intervals
    target: Intervals


class EntryMatcher:
    """Matches entries of topics; reads the messages of one topic at a time.

    :param engines: the engines that read messages, by side.
    """

    def __init__(
        self, source: AdminClient, target: AdminClient, engines: Mapping[Side, Engine], names: tuple[str, str]
    ) -> None:
        self._source = source
        self._target = target
        self._engines = engines
        self._names = names
        self._reading = asyncio.Lock()

    async def find(
        self, pair: Pair, ledgers: Mapping[Side, Ledgers], unread: Unread, *, markers: bool
    ) -> Correspondence:
        """The correspondence of at least all entries in `unread`.

        :param markers: brokers may have stored markers among the messages, which exist on one cluster only.
        :raises Unmatchable: it would take more than `MOST_MESSAGES` or `MOST_CALLS`.
        """
        if not (unread.source or unread.target):
            return OneToOne(0)
        # Publish times are compared only if the replicator made the copy, which then has source positions.
        replicated, topic = pair.publish_time, TopicName.parse(pair.topic)
        copies = Copies(self._source, self._target, topic, ledgers[Side.SOURCE], ledgers[Side.TARGET])
        if replicated and not markers and (shift := await _shift(copies, pair, unread)) is not None:
            return OneToOne(shift)
        begins = await _begins(copies, pair, unread)
        by_content = ByContent.of(*await self._listings(pair, ledgers, begins))
        if not replicated:
            return by_content
        return by_content.without(await self._own(copies, by_content.only_in_target(unread.target)))

    async def _listings(
        self, pair: Pair, ledgers: Mapping[Side, Ledgers], begins: Mapping[Side, int]
    ) -> tuple[Listing, Listing]:
        ends = {side: replace(pair.bounds(side), begin=begin) for side, begin in begins.items()}
        for side, name in zip(Side, self._names, strict=True):
            if len(ends[side]) > MOST_MESSAGES:
                raise _too_much(name)
        async with self._reading:
            source, target = await asyncio.gather(
                *(
                    asyncio.to_thread(self._list, side, name, pair, ends[side], ledgers[side])
                    for side, name in zip(Side, self._names, strict=True)
                )
            )
        return source, target

    def _list(self, side: Side, name: str, pair: Pair, bounds: TopicBounds, ledgers: Ledgers) -> Listing:
        import numpy as np

        from pulsar_fleet.messages.digests import digest

        contents: list[bytes] = []
        entries = array("q")
        for entry_range in cut(bounds, pair=0, publish_time=pair.publish_time):
            for messages in self._engines[side].read(replace(entry_range, origin=pair.origin(side))):
                contents.extend(digest(message, publish_time=pair.publish_time) for message in messages)
                entries.extend(ledgers.index_after(message.position) - 1 for message in messages)
                if len(contents) > MOST_MESSAGES:
                    raise _too_much(name)
        return Listing(contents, np.array(entries, dtype=np.int64))

    async def _own(self, copies: Copies, entries: tuple[int, ...]) -> Iterable[int]:
        """The entries that were published on the target directly, so that they are not copies of the source's."""
        if len(entries) > MOST_CALLS:
            raise Unmatchable(
                f"{len(entries):,} unread entries of {self._names[1]} are not unread on {self._names[0]}, but the "
                f"origin of at most {MOST_CALLS} entries is checked; compare the messages first"
            )
        positions = await asyncio.gather(*map(copies.origin, entries))
        return [number for number, position in zip(entries, positions, strict=True) if position is None]


async def _shift(copies: Copies, pair: Pair, unread: Unread) -> int | None:
    """The difference of entry numbers, if all checked entries have it and every unread entry has a partner.

    The replicator keeps the order of entries. So if it is the same at both ends, no entry between is unmatched.
    """
    end = pair.target.end
    if not end or (shift := await _shift_at(copies, end - 1)) is None:
        return None
    translated = unread.target.union(unread.source.shifted(-shift))
    if translated.runs[0][0] < 0 or translated.runs[-1][1] > end or translated.runs[0][0] + shift < 0:
        return None
    shifts = await asyncio.gather(*(_shift_at(copies, number) for number in _edges(translated)))
    return shift if set(shifts) == {shift} else None


async def _shift_at(copies: Copies, number: int) -> int | None:
    came_from = await _source_number(copies, number)
    return None if came_from is None else came_from - number


async def _source_number(copies: Copies, number: int) -> int | None:
    """The source's number of an entry of the target; None if the source never had it or no longer has it."""
    position = await copies.origin(number)
    if position is None:
        return None
    came_from = copies.originals.index_after(position) - 1
    return came_from if came_from >= 0 and copies.originals.at(came_from) == position else None


async def _begins(copies: Copies, pair: Pair, unread: Unread) -> Mapping[Side, int]:
    """The entry from which each cluster is read: its first unread one; on the source also that of the target."""
    source = pair.source.end if unread.source.first is None else unread.source.first
    target = pair.target.end if unread.target.first is None else unread.target.first
    replicated = pair.publish_time
    if replicated and unread.target and (number := await _source_number(copies, target)) is not None:
        source = min(source, number)
    return {Side.SOURCE: source, Side.TARGET: target}


def _edges(numbers: Intervals) -> list[int]:
    """The first and the last number and, evenly spread, ends of the intervals between."""
    ends = sorted({number for begin, end in numbers.runs for number in (begin, end - 1)})
    last = len(ends) - 1
    count = min(POSITION_LOOKUPS, len(ends))
    return [ends[place * last // max(1, count - 1)] for place in range(count)]


def _too_much(name: str) -> Unmatchable:
    return Unmatchable(
        f"the entries of the two clusters do not match one to one, and on {name} more than {MOST_MESSAGES:,} messages "
        "would have to be read to match them; let the subscriptions with the largest backlog catch up"
    )
