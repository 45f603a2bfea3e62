"""Entry numbers and positions of a topic."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import Position, TopicName

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
