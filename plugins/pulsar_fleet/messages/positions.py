"""Entry numbers and positions of a topic, and the source positions of replicated entries."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import Position, TopicName

SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"
_MARKERS_IN_A_ROW = 8
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


async def source_position(copy: AdminClient, topic: TopicName, entry: Position) -> Position | None:
    """The source position of one entry of a copy; None for an entry that was published on the copy directly. One call.

    Read over HTTP, because the client shows the property on unbatched messages only (observed).
    """
    position = source_position_in(await copy.entry_properties(topic, entry))
    return Position.parse(position) if position else None


def source_position_in(headers: Mapping[str, str]) -> str | None:
    """The source position in the headers that a broker answers for an entry; Pulsar 3.0 has one header a property."""
    properties = json.loads(headers.get("x-pulsar-property") or "{}")
    return properties.get(SOURCE_POSITION) or headers.get(f"x-pulsar-property-{SOURCE_POSITION.lower()}")


async def count_before(admin: AdminClient, topic: TopicName, ledgers: Ledgers, time: int) -> int:
    """The number of first entries that were published before `time` (milliseconds since 1970), by a binary search.

    Exact if publish times ascend; otherwise it ends at one of the entries where they pass `time`.
    """
    low, high = 0, len(ledgers)
    while low < high:
        middle = (low + high) // 2
        headers = await admin.entry_properties(topic, ledgers.at(middle))
        published = datetime.fromisoformat(headers["x-pulsar-publish-time"])
        if published.timestamp() * 1000 < time:
            low = middle + 1
        else:
            high = middle
    return low


async def count_up_to(copy: AdminClient, topic: TopicName, ledgers: Ledgers, source: Position) -> int:
    """The number of the copy's first entries that have a source position up to and including `source`.

    Replicated entries keep their order and lie before the messages that were published on the copy after the cut-over,
    so this is a binary search: about 17 calls for 100,000 entries. It skips the markers that the copy's own broker
    stores for replicated subscriptions.
    """
    low, high = 0, len(ledgers)
    while low < high:
        middle = (low + high) // 2
        for number in range(middle, min(high, middle + _MARKERS_IN_A_ROW)):
            if (position := await source_position(copy, topic, ledgers.at(number))) is not None:
                break
        if position is not None and position <= source:
            low = number + 1
        else:
            high = middle
    return low
