"""Entry numbers and positions of a topic, and sets of them as intervals."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, chain, islice
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import Cursor

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


TIME_MARGIN_MS = 60_000
"""Publish times come from the producers' clocks and do not ascend, so this margin before and after a time is read
too.
"""


@dataclass(frozen=True, slots=True)
class Ledgers(Document):
    """The entries of a topic in order: position to index and back, in time logarithmic in the number of ledgers.

    :param runs: (ledger, number of entries) without empty ledgers, ascending.
    """

    runs: tuple[tuple[int, int], ...]
    _begins: tuple[int, ...] = field(init=False, repr=False, compare=False)

    @classmethod
    def of(cls, internal_stats: JsonObject) -> Ledgers:
        """Read `internalStats`, which counts 0 entries in the open ledger; so its end is `lastConfirmedEntry`."""
        last = Position.parse(internal_stats["lastConfirmedEntry"])
        counted = (
            (ledger["ledgerId"], last.entry + 1 if ledger["ledgerId"] == last.ledger else int(ledger["entries"]))
            for ledger in internal_stats["ledgers"]
            if ledger["ledgerId"] <= last.ledger
        )
        return cls(tuple((ledger, entries) for ledger, entries in counted if entries > 0))

    def grown_to(self, now: Ledgers) -> Ledgers:
        """The same entries with those that came since, by the same numbers: also of ledgers that were removed since."""
        return Ledgers(tuple(sorted({**dict(self.runs), **dict(now.runs)}.items())))

    def document_of(self) -> Json:
        """The ledgers alone."""
        return self.runs

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """The ledgers as a field."""
        return {"runs": document}

    def __post_init__(self) -> None:
        object.__setattr__(self, "_begins", (0, *accumulate(entries for _, entries in self.runs)))

    def __len__(self) -> int:
        return self._begins[-1]

    def at(self, index: int) -> Position:
        """The position of entry `index` (0-based); `IndexError` if there is no such entry."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        place = bisect_right(self._begins, index) - 1
        return Position(self.runs[place][0], index - self._begins[place])

    def index_after(self, position: Position) -> int:
        """Index of the first entry after `position`, which is the number of entries up to and including it.

        The position need not exist: it may lie before a ledger's first entry, or in a ledger that is empty or removed.
        """
        place = bisect_right(self.runs, position.ledger, key=lambda run: run[0])
        if place and self.runs[place - 1][0] == position.ledger:
            return self._begins[place - 1] + max(0, min(position.entry + 1, self.runs[place - 1][1]))
        return self._begins[place]


async def count_before(admin: AdminClient, topic: TopicName, ledgers: Ledgers, time: int) -> int:
    """The number of first entries that were published before `time` (milliseconds since 1970), by a binary search.

    Exact if publish times ascend; otherwise it ends at one of the entries where they pass `time`.
    """
    low, high = 0, len(ledgers)
    while low < high:
        middle = (low + high) // 2
        headers = await admin.entry_properties(topic, ledgers.at(middle))
        if published_ms(headers) < time:
            low = middle + 1
        else:
            high = middle
    return low


def published_ms(headers: Mapping[str, str]) -> int:
    """The publish time of an entry, in milliseconds since 1970."""
    return round(datetime.fromisoformat(headers["x-pulsar-publish-time"]).timestamp() * 1000)


def terminated_at(internal_info: JsonObject) -> Position | None:
    """Where a topic or partition was terminated, in its `internal-info`; None while it accepts messages."""
    position = internal_info.get("terminatedPosition")
    return Position(int(position["ledgerId"]), int(position["entryId"])) if position else None


def ledgers_behind(internal_info: JsonObject) -> tuple[int, ...]:
    """The ledgers of a terminated topic behind its terminated position; none is the normal case.

    When a termination meets the roll-over of a ledger, brokers before 4.0.14 and 4.2.5 go on writing (apache/pulsar
    26680): producers get a confirmation for entries that no consumer ever gets (observed with ledgers of 5 entries).
    """
    end = terminated_at(internal_info)
    return tuple(ledger["ledgerId"] for ledger in internal_info["ledgers"] if end and ledger["ledgerId"] > end.ledger)


async def entries_behind(admin: AdminClient, topic: TopicName, internal_info: JsonObject) -> dict[int, int]:
    """Ledger → number of its entries, for the ledgers behind the end of a topic; no call where there is none."""
    ledgers = ledgers_behind(internal_info)
    return entries_in(await admin.internal_stats(topic), ledgers) if ledgers else {}


def entries_in(internal_stats: JsonObject, ledgers: Collection[int]) -> dict[int, int]:
    """Ledger → number of its entries, without empty ledgers; the newest one may be open, and is counted apart."""
    counts = {ledger["ledgerId"]: int(ledger["entries"]) for ledger in internal_stats["ledgers"]}
    if counts:
        newest = max(counts)
        counts[newest] = max(counts[newest], int(internal_stats["currentLedgerEntries"]))
    return {ledger: counts[ledger] for ledger in ledgers if counts.get(ledger)}
