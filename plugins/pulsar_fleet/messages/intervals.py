"""What a subscription has not read yet, as intervals of entry numbers (pure): 10^6 unread entries are one interval.

Entries are numbered from 0 in the topic as it was when its bounds were frozen. So a position that the broker writes in
another way after an unload (`7:-1` instead of `5:9`), or that lies in a ledger that was removed, means the same entry.
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
from pulsar_fleet.messages.positions import Ledgers

_RANGE = r"([(\[])(-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)([)\]])"
_RANGES = re.compile(rf"\[(?:{_RANGE}(?:,\s*{_RANGE})*)?\]")
_ONE_RANGE = re.compile(_RANGE)


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of whole numbers.

    :param runs: (begin, end) with the end excluded; sorted, none empty, none touching the next.
    """

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, runs: Iterable[tuple[int, int]]) -> Self:
        """The numbers in any of the runs, which may overlap, be empty and come in any order."""
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
        """The smallest number, None where there is none."""
        return self.runs[0][0] if self.runs else None

    @property
    def last(self) -> int | None:
        """The greatest number, None where there is none."""
        return self.runs[-1][1] - 1 if self.runs else None

    def head(self, count: int) -> tuple[int, ...]:
        """The `count` smallest numbers."""
        return tuple(islice(self, count))

    def minus(self, other: Intervals) -> Intervals:
        """The numbers of this set that `other` has not."""
        left: list[tuple[int, int]] = []
        taken = iter(other.runs)
        away = next(taken, None)
        for begin, end in self.runs:
            while away and away[1] <= begin:
                away = next(taken, None)
            while away and away[0] < end:
                if begin < away[0]:
                    left.append((begin, away[0]))
                begin = max(begin, away[1])
                if away[1] > end:
                    break
                away = next(taken, None)
            if begin < end:
                left.append((begin, end))
        return Intervals(tuple(left))

    def union(self, other: Intervals) -> Intervals:
        """The numbers of both."""
        return Intervals.of((*self.runs, *other.runs))

    def shifted(self, by: int) -> Intervals:
        """Every number greater by `by`."""
        return Intervals(tuple((begin + by, end + by) for begin, end in self.runs))


def unread_entries(numbers: Ledgers, mark_delete: Position, deleted: str, *, end: int) -> Intervals:
    """The entries below `end` that a cursor would still deliver.

    :param mark_delete: up to here, and including it, everything is acknowledged.
    :param deleted: what is acknowledged behind that, as `internalStats` writes it: `[(18:3..18:5],(18:9..18:10]]`.
    :raises Rejected: the text is not of that form.
    """
    open_entries = Intervals.of([(numbers.behind(mark_delete), end)])
    return open_entries.minus(Intervals.of(_acknowledged_alone(numbers, deleted)))


def _acknowledged_alone(numbers: Ledgers, text: str) -> Iterator[tuple[int, int]]:
    if not _RANGES.fullmatch(text):
        raise InvalidRequest(
            f"individuallyDeletedMessages {text[:200]!r} is not a list of ranges such as [(18:3..18:5]]."
        )
    for low, ledger, entry, last_ledger, last_entry, high in _ONE_RANGE.findall(text):
        begin = numbers.behind(Position(int(ledger), int(entry) - (low == "[")))
        yield begin, numbers.behind(Position(int(last_ledger), int(last_entry) - (high == ")")))
