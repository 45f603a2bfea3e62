"""Find out which entries of a copy are which of the source: by a few looks at their source positions where they are
one to one, else by reading the messages that are still unread anywhere."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers, source_position
from pulsar_fleet.messages.ranges import TopicBounds, cut
from pulsar_fleet.messages.scan import Engine
from pulsar_fleet.verification.request import Pair
from pulsar_fleet.verification.subscriptions.correspondence import ByContent, Correspondence, Listing, OneToOne

LOOKS = 16
"""Entries of a copy whose source position is looked at before it is taken to be entry for entry the same."""

MESSAGES_AT_MOST = 200_000
"""Messages that are read of one topic and side where entries are not one to one; about 10 µs of CPU each."""

CALLS_AT_MOST = 500
"""Entries of a copy, without a partner, for which the broker is asked where they came from."""


class Unclear(Exception):
    """The two topics' entries cannot be told to be the same; the message says why."""


@dataclass(frozen=True, slots=True)
class Unread:
    """What any subscription of a topic has not read, of both sides, numbered in the frozen topics."""

    source: Intervals
    target: Intervals


class Partners:
    """Compares positions between two clusters; one topic's messages are read at a time.

    :param engines: how messages are read, per side.
    """

    def __init__(self, target: AdminClient, engines: Mapping[Side, Engine], names: tuple[str, str]) -> None:
        self._target = target
        self._engines = engines
        self._names = names
        self._reading = asyncio.Lock()

    async def find(
        self, pair: Pair, numbers: Mapping[Side, Ledgers], unread: Unread, *, markers: bool
    ) -> Correspondence:
        """What corresponds, at least for all entries in `unread`.

        :param markers: the broker itself may have stored entries among the messages, which are on one side only.
        :raises Unclear: it would take more than the stated numbers of messages or calls.
        """
        if not (unread.source or unread.target):
            return OneToOne(0)
        # Publish times are only compared where the replicator made the copy, and so left the source positions.
        replicated = pair.publish_time
        if replicated and not markers and (shift := await self._shift(pair, numbers, unread)) is not None:
            return OneToOne(shift)
        begins = await self._begins(pair, numbers, unread, replicated=replicated)
        found = ByContent.of(*await self._listings(pair, numbers, begins))
        if not replicated:
            return found
        return found.without(await self._own(pair, numbers, found.alone_in_target(unread.target)))

    async def _shift(self, pair: Pair, numbers: Mapping[Side, Ledgers], unread: Unread) -> int | None:
        """By how much the numbers differ, if that is the same wherever we look, and every unread entry has a partner.

        The replicator keeps the order of entries. So if it is the same at both ends, no entry lies on one side only.
        """
        end = pair.target.end
        if not end or (shift := await self._shift_at(pair, numbers, end - 1)) is None:
            return None
        wanted = unread.target.union(unread.source.shifted(-shift))
        if wanted.runs[0][0] < 0 or wanted.runs[-1][1] > end or wanted.runs[0][0] + shift < 0:
            return None
        shifts = await asyncio.gather(*(self._shift_at(pair, numbers, number) for number in _edges(wanted)))
        return shift if set(shifts) == {shift} else None

    async def _shift_at(self, pair: Pair, numbers: Mapping[Side, Ledgers], number: int) -> int | None:
        came_from = await self._source_number(pair, numbers, number)
        return None if came_from is None else came_from - number

    async def _source_number(self, pair: Pair, numbers: Mapping[Side, Ledgers], number: int) -> int | None:
        """The source's number of an entry of the target; None if it was never there, or is there no more."""
        found = await self._source_position(pair, numbers, number)
        if found is None:
            return None
        source = numbers[Side.SOURCE]
        came_from = source.behind(found) - 1
        return came_from if came_from >= 0 and source.at(came_from) == found else None

    async def _source_position(self, pair: Pair, numbers: Mapping[Side, Ledgers], number: int) -> Position | None:
        return await source_position(self._target, TopicName.parse(pair.topic), numbers[Side.TARGET].at(number))

    async def _begins(
        self, pair: Pair, numbers: Mapping[Side, Ledgers], unread: Unread, *, replicated: bool
    ) -> Mapping[Side, int]:
        """From which entry on each side is read: its first unread one, on the source also the other side's."""
        source = pair.source.end if unread.source.first is None else unread.source.first
        target = pair.target.end if unread.target.first is None else unread.target.first
        if replicated and unread.target and (there := await self._source_number(pair, numbers, target)) is not None:
            source = min(source, there)
        return {Side.SOURCE: source, Side.TARGET: target}

    async def _listings(
        self, pair: Pair, numbers: Mapping[Side, Ledgers], begins: Mapping[Side, int]
    ) -> tuple[Listing, Listing]:
        ends = {side: replace(pair.bounds(side), begin=begin) for side, begin in begins.items()}
        for side, name in zip(Side, self._names, strict=True):
            if len(ends[side]) > MESSAGES_AT_MOST:
                raise _too_much(name)
        async with self._reading:
            source, target = await asyncio.gather(
                *(
                    asyncio.to_thread(self._list, side, name, pair, ends[side], numbers[side])
                    for side, name in zip(Side, self._names, strict=True)
                )
            )
        return source, target

    def _list(self, side: Side, name: str, pair: Pair, bounds: TopicBounds, numbers: Ledgers) -> Listing:
        import numpy as np

        from pulsar_fleet.messages.digests import digest
        from pulsar_fleet.messages.message_ids import position_of

        contents: list[bytes] = []
        entries = array("q")
        for wanted in cut(bounds, pair=0, publish_time=pair.publish_time):
            for messages in self._engines[side].read(wanted):
                contents.extend(digest(each, publish_time=pair.publish_time) for each in messages)
                entries.extend(numbers.behind(position_of(each)) - 1 for each in messages)
                if len(contents) > MESSAGES_AT_MOST:
                    raise _too_much(name)
        return Listing(contents, np.array(entries, dtype=np.int64))

    async def _own(self, pair: Pair, numbers: Mapping[Side, Ledgers], entries: tuple[int, ...]) -> Iterable[int]:
        """Which of these entries of the target were published on it directly, and so are nothing of the source's."""
        if len(entries) > CALLS_AT_MOST:
            raise Unclear(
                f"{len(entries):,} unread entries of {self._names[1]} are not among what is unread on "
                f"{self._names[0]}, and only {CALLS_AT_MOST} are looked at one by one; compare the messages first"
            )
        found = await asyncio.gather(*(self._source_position(pair, numbers, number) for number in entries))
        return [number for number, position in zip(entries, found, strict=True) if position is None]


def _edges(wanted: Intervals) -> list[int]:
    """Both ends of what is wanted and, evenly spread, ends of its intervals."""
    ends = sorted({number for begin, end in wanted.runs for number in (begin, end - 1)})
    last = len(ends) - 1
    count = min(LOOKS, len(ends))
    return [ends[place * last // max(1, count - 1)] for place in range(count)]


def _too_much(name: str) -> Unclear:
    return Unclear(
        f"entries of the two sides are not one to one, and on {name} more than {MESSAGES_AT_MOST:,} messages "
        "would have to be read to tell them apart; let the subscriptions that are furthest behind catch up"
    )
