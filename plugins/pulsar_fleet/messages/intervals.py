"""The backlog of a subscription as intervals of entry numbers (pure): 10^6 unread entries are one interval.

Entries are numbered from 0 in the topic as it was when its bounds were frozen. After an unload the broker may write a
position differently (`7:-1` instead of `5:9`), or its ledger may be removed: the entry number stays the same.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics.cursors import Cursor
from pulsar_fleet.messages.positions import Ledgers

_RANGE = r"([(\[])(-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)([)\]])"
_RANGES = re.compile(rf"\[(?:{_RANGE}(?:,\s*{_RANGE})*)?\]")
_ONE_RANGE = re.compile(_RANGE)


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of integers.

    :param runs: (begin, end) with the end excluded; sorted, none empty, none touching the next.
    """

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int]]) -> Self:
        """The numbers of all runs; runs may overlap, be empty and come in any order."""
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(run for run in runs if run[0] < run[1]):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((begin, end))
        return cls(tuple(merged))

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self.runs)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.runs, number, key=lambda run: run[0])
        return place > 0 and number < self.runs[place - 1][1]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(begin, end) for begin, end in self.runs)

    @property
    def first(self) -> int | None:
        """The smallest number; None if the set is empty."""
        return self.runs[0][0] if self.runs else None

    @property
    def last(self) -> int | None:
        """The greatest number; None if the set is empty."""
        return self.runs[-1][1] - 1 if self.runs else None

    def head(self, count: int) -> tuple[int, ...]:
        """The `count` smallest numbers."""
        return tuple(islice(self, count))

    def minus(self, other: Intervals) -> Intervals:
        """The numbers of this set that are not in `other`."""
        remaining: list[tuple[int, int]] = []
        removals = iter(other.runs)
        removal = next(removals, None)
        for begin, end in self.runs:
            while removal and removal[0] < end:
                if begin < removal[0]:
                    remaining.append((begin, removal[0]))
                begin = max(begin, removal[1])
                if removal[1] > end:
                    break
                removal = next(removals, None)
            if begin < end:
                remaining.append((begin, end))
        return Intervals(tuple(remaining))

    def union(self, other: Intervals) -> Intervals:
        """The numbers that are in this set or in `other`."""
        return Intervals.of((*self.runs, *other.runs))

    def shifted(self, by: int) -> Intervals:
        """Every number plus `by`."""
        return Intervals(tuple((begin + by, end + by) for begin, end in self.runs))


def unread_entries(cursor: Cursor, ledgers: Ledgers, end: int) -> Intervals:
    """The entries below `end` that a cursor would still deliver.

    :raises InvalidRequest: the individually acknowledged entries do not have the form of `internalStats`.
    """
    open_entries = Intervals.of([(ledgers.index_after(cursor.mark_delete), end)])
    return open_entries.minus(Intervals.of(_individually_acknowledged(ledgers, cursor.acknowledged)))


def _individually_acknowledged(ledgers: Ledgers, text: str) -> Iterator[tuple[int, int]]:
    if not _RANGES.fullmatch(text):
        raise InvalidRequest(
            f"individuallyDeletedMessages {text[:200]!r} is not a list of ranges such as [(18:3..18:5]]."
        )
    for low, ledger, entry, last_ledger, last_entry, high in _ONE_RANGE.findall(text):
        begin = ledgers.index_after(Position(int(ledger), int(entry) - (low == "[")))
        yield begin, ledgers.index_after(Position(int(last_ledger), int(last_entry) - (high == ")")))
