"""Which entries are read, and by which task (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Self

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.reading.source_positions import Ledgers

ENTRIES_PER_RANGE = 10_000
"""Entries that one range holds at most; a range is what is read by one reader and retried as a whole."""


class EngineName(StrEnum):
    """Who reads a range; both sides of a pair are read by the same, because their digests are not of one kind."""

    CLIENT = "client"
    """pulsar-client, message by message: for every copy."""
    ENTRY = "entry"
    """Whole entries as they are stored: for copies that geo-replication made."""


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """What of one topic is read, frozen: its entries from `begin` (0-based) up to `end` (exclusive).

    Later entries, and ledgers that roll over meanwhile, do not change it.

    :param terminated: nothing can be written to the topic any more, as after it was migrated.
    """

    topic: str
    ledgers: Ledgers
    begin: int
    end: int
    terminated: bool = False

    @classmethod
    def whole(cls, topic: str, internal_stats: JsonObject) -> Self:
        """All entries that `internalStats` shows."""
        ledgers = Ledgers.of(internal_stats)
        return cls(topic, ledgers, 0, len(ledgers), internal_stats.get("state") == "Terminated")

    def __len__(self) -> int:
        return max(0, self.end - self.begin)

    @property
    def first(self) -> Position | None:
        """Position of the first entry, None when there is none."""
        return self.ledgers.at(self.begin) if len(self) else None

    @property
    def last(self) -> Position | None:
        """Position of the last entry, None when there is none."""
        return self.ledgers.at(self.end - 1) if len(self) else None

    def to_json(self) -> JsonObject:
        """As a JSON object; part of a request, which carries the version."""
        return {
            "topic": self.topic,
            "ledgers": self.ledgers.runs,
            "begin": self.begin,
            "end": self.end,
            "terminated": self.terminated,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        runs = tuple((int(ledger), int(entries)) for ledger, entries in found["ledgers"])
        return cls(
            str(found["topic"]), Ledgers(runs), int(found["begin"]), int(found["end"]), bool(found["terminated"])
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive entries of one topic, both ends included.

    :param pair: number of the pair of topics that is compared.
    :param index: order of the range within its topic.
    :param publish_time: whether the publish time belongs to the content (it does in a copy made by the replicator).
    :param final: it is the last entry of a terminated topic, and nothing else.
    :param engine: who reads it.
    """

    pair: int
    index: int
    topic: str
    first: Position
    last: Position
    entries: int
    publish_time: bool
    final: bool = False
    engine: EngineName = EngineName.CLIENT

    def to_json(self) -> Json:
        """As a short JSON list: a task may hold thousands."""
        ends = [self.first.ledger, self.first.entry, self.last.ledger, self.last.entry]
        return [self.pair, self.index, self.topic, *ends, self.entries, self.publish_time, self.final, self.engine]

    @classmethod
    def from_json(cls, found: Json) -> Self:
        """Read what `to_json` wrote."""
        pair, index, topic, ledger, entry, last_ledger, last_entry, entries, publish_time, final, engine = found
        first, last = Position(ledger, entry), Position(last_ledger, last_entry)
        return cls(pair, index, topic, first, last, entries, publish_time, final, EngineName(engine))


def cut(
    bounds: TopicBounds,
    *,
    pair: int,
    publish_time: bool,
    entries_per_range: int = ENTRIES_PER_RANGE,
    engine: EngineName = EngineName.CLIENT,
) -> Iterator[Range]:
    """Cut what is read of one topic into ranges, in topic order; none for a topic without entries.

    The last entry of a terminated topic is a range of its own: a 4.2.4 broker dead-locks for good when a reader is
    given the end of a migrated topic while its acknowledgment of the last entry arrives (observed). So whoever reads
    what comes before never acknowledges the last entry, and whoever reads that one has nothing else to ask for.
    """
    ends = list(range(bounds.begin + entries_per_range, bounds.end, entries_per_range))
    if bounds.terminated and bounds.end == len(bounds.ledgers) and len(bounds) > 1 and bounds.end - 1 not in ends:
        ends.append(bounds.end - 1)
    for index, (begin, end) in enumerate(pairwise([bounds.begin, *ends, bounds.end] if len(bounds) else [])):
        first, last = bounds.ledgers.at(begin), bounds.ledgers.at(end - 1)
        final = bounds.terminated and end == len(bounds.ledgers)
        yield Range(pair, index, bounds.topic, first, last, end - begin, publish_time, final, engine)


def group(ranges: Iterable[Range], *, entries_per_task: int = ENTRIES_PER_RANGE) -> list[list[Range]]:
    """Put small ranges together, so that a task is worth its start: each group holds at least one range."""
    groups: list[list[Range]] = []
    room = 0
    for wanted in ranges:
        if not groups or wanted.entries > room:
            groups.append([])
            room = entries_per_task
        groups[-1].append(wanted)
        room -= wanted.entries
    return groups


def unread_entries(wanted: Range, at: Position) -> int:
    """At least how many entries of `wanted` lie behind `at`; 0 only at its last entry or behind it.

    A message is never longer than an entry, so as many messages can be read without looking where they lie.
    """
    if at >= wanted.last:
        return 0
    if at.ledger == wanted.last.ledger:
        return wanted.last.entry - at.entry
    return wanted.last.entry + 1
