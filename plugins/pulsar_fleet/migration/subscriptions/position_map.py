"""Map blue's entries to green's copies, by the source positions that the replicator wrote into the copies."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.ranges import EARLIEST

_CONCURRENT_RUNS = 64
_LOOKED_BACK = 64
_MOST_LOOKED_AT = 2000


class PositionMap:
    """One partition on both clusters; every entry that it is called with must be replicated already.

    Copies keep their order, but the entries may differ: blue may hold entries that are not replicated, green
    markers of its own. Where the distance is the same as before, one call confirms it; otherwise it takes a binary
    search.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._copy = copies.copies
        self._source = copies.originals
        self._shift = len(self._copy) - len(self._source)

    async def count_before(self, number: int) -> int:
        """How many of green's entries lie before the copy of blue's entry `number`, which may be one past the last."""
        if not len(self._source):
            # Every subscription on blue has read what green holds, otherwise blue would hold it too.
            return len(self._copy)
        guess = number + self._shift
        if number < len(self._source) and await self._is_copy(guess, number):
            return guess
        if number:
            return await self._count_through(number - 1)
        first = self._source.at(0)
        return await self._search(number, Position(first.ledger, first.entry - 1))

    async def count_acknowledged(self, number: int, mark_delete: Position) -> int:
        """How many of green's entries lie up to the last copy of blue's first `number` entries, for a cursor there.

        Unlike `count_before` it leaves out what green's producers wrote between that copy and the next one.
        """
        return await self._count_through(number - 1) if number else await self._search(0, mark_delete)

    async def first_written(self, begin: int, end: int) -> int:
        """The first of green's entries in [begin, end) that a producer wrote to green: no cursor may skip it.

        `end` where there is none. It looks at the first 2,000, one call for each, and answers for no more.
        """
        last = min(end, begin + _MOST_LOOKED_AT)
        for start in range(begin, last, _CONCURRENT_RUNS):
            chunk = range(start, min(start + _CONCURRENT_RUNS, last))
            written = await asyncio.gather(*(self._copies.is_original(index) for index in chunk))
            if True in written:
                return start + written.index(True)
        return last

    async def last_original(self, number: int) -> Position:
        """Blue's entry whose copy is the last one among green's first `number` entries; before all where none is.

        Green's producers may have written some of the entries; it looks at the last 64.
        """
        for index in range(number - 1, max(number - 1 - _LOOKED_BACK, -1), -1):
            if (origin := await self._copies.origin(index)) is not None:
                return origin
        return EARLIEST

    async def copies(self, entries: Intervals) -> Intervals:
        """Green's entries from the copy of each run's first entry to that of its last, with all entries in between."""
        runs: list[tuple[int, int]] = []
        for start in range(0, len(entries.runs), _CONCURRENT_RUNS):
            chunk = entries.runs[start : start + _CONCURRENT_RUNS]
            runs += await asyncio.gather(*(self._run(begin, end) for begin, end in chunk))
        return Intervals.of(runs)

    async def _run(self, begin: int, end: int) -> tuple[int, int]:
        return await self.count_before(begin), await self._count_through(end - 1)

    async def _count_through(self, number: int) -> int:
        """How many of green's entries lie up to and including the copy of blue's entry `number`."""
        guess = number + self._shift
        if await self._is_copy(guess, number):
            return guess + 1
        return await self._search(number + 1, self._source.at(number))

    async def _search(self, number: int, last: Position) -> int:
        count = await self._copies.count_up_to(last)
        self._shift = count - number
        return count

    async def _is_copy(self, index: int, number: int) -> bool:
        if not 0 <= index < len(self._copy):
            return False
        return await self._copies.origin(index) == self._source.at(number)
