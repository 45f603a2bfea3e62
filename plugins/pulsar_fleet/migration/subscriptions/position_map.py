"""Which of green's entries are the copies of blue's, by the source positions that the replicator wrote into them."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers, count_up_to, source_position

_RUNS_AT_ONCE = 64


class Copies:
    """One partition on both sides. Everything asked about must have been replicated already.

    Copies keep their order, but need not be entry for entry: blue may hold entries that are not replicated, green
    markers of its own. Where the distance is the same as before, one call confirms it; else it takes a binary search.
    """

    def __init__(self, green: AdminClient, topic: TopicName, blue: Ledgers, copy: Ledgers) -> None:
        self._green = green
        self._topic = topic
        self._copy = copy
        self._blue = blue
        self._shift = len(copy) - len(blue)

    async def before(self, number: int) -> int:
        """How many of green's entries lie before the copy of blue's entry `number`, which may be one past the last."""
        if not len(self._blue):
            # What green holds was read by everybody on blue, else blue would hold it too.
            return len(self._copy)
        guess = number + self._shift
        if number < len(self._blue) and await self._is_copy(guess, number):
            return guess
        if number:
            return await self._behind(number - 1)
        first = self._blue.at(0)
        return await self._search(number, Position(first.ledger, first.entry - 1))

    async def of(self, entries: Intervals) -> Intervals:
        """Green's entries from the copy of each run's first to that of its last; what lies between belongs to it."""
        found: list[tuple[int, int]] = []
        for start in range(0, len(entries.runs), _RUNS_AT_ONCE):
            some = entries.runs[start : start + _RUNS_AT_ONCE]
            found += await asyncio.gather(*(self._run(begin, end) for begin, end in some))
        return Intervals.of(found)

    async def _run(self, begin: int, end: int) -> tuple[int, int]:
        return await self.before(begin), await self._behind(end - 1)

    async def _behind(self, number: int) -> int:
        """How many of green's entries lie up to the copy of entry `number`, and including it."""
        guess = number + self._shift
        if await self._is_copy(guess, number):
            return guess + 1
        return await self._search(number + 1, self._blue.at(number))

    async def _search(self, number: int, last: Position) -> int:
        found = await count_up_to(self._green, self._topic, self._copy, last)
        self._shift = found - number
        return found

    async def _is_copy(self, place: int, number: int) -> bool:
        if not 0 <= place < len(self._copy):
            return False
        return await source_position(self._green, self._topic, self._copy.at(place)) == self._blue.at(number)
