"""Bounds of topics, cut into ranges of entries and grouped into tasks (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.positions import Ledgers

ENTRIES_PER_RANGE = 10_000
"""The most entries of one range; one reader reads a range, and a retry reads all of it again."""

EARLIEST = Position(-1, -1)

LOOKBACK_ENTRIES = 1_000
"""Entries before a range in which a reader looks for the first chunk of a message."""


ANY_REPLICATOR = "*"
NO_REPLICATOR = "-"


def is_from(origin: str, wanted: str) -> bool:
    """Whether an entry is read, by the cluster whose replicator wrote it.

    :param origin: that cluster; empty for what producers of this cluster wrote.
    :param wanted: the name of a cluster, `ANY_REPLICATOR`, `NO_REPLICATOR`, or empty for every entry.
    """
    if wanted == NO_REPLICATOR:
        return not origin
    return not wanted or origin == wanted or (wanted == ANY_REPLICATOR and bool(origin))


class EngineName(StrEnum):
    """The engine that reads a range; one engine reads both sides of a pair, because digests of two engines differ."""

    MESSAGE = "message"
    """Message by message, batches unpacked: for every copy."""
    ENTRY = "entry"
    """Whole entries as the bookies store them: for copies that geo-replication made."""


@dataclass(frozen=True, slots=True)
class TopicBounds(Document):
    """The frozen bounds of one topic: its entries from `begin` (0-based) up to `end` (exclusive).

    Later entries, and ledgers that roll over meanwhile, do not change them.

    :param spans: the parts that are read, as (begin, end), ascending; empty if everything is read.
    """

    topic: str
    ledgers: Ledgers
    begin: int
    end: int
    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def whole(cls, topic: str, internal_stats: JsonObject) -> Self:
        """All entries that `internalStats` shows."""
        ledgers = Ledgers.of(internal_stats)
        return cls(topic, ledgers, 0, len(ledgers))

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self.parts())

    def parts(self) -> tuple[tuple[int, int], ...]:
        """The parts that are read, as (begin, end)."""
        return self.spans or (((self.begin, self.end),) if self.end > self.begin else ())

    @property
    def first(self) -> Position | None:
        """Position of the first entry; None without entries."""
        return self.ledgers.at(self.parts()[0][0]) if len(self) else None

    @property
    def last(self) -> Position | None:
        """Position of the last entry; None without entries."""
        return self.ledgers.at(self.parts()[-1][1] - 1) if len(self) else None


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive entries of one topic, both ends included.

    :param pair: number of the pair of topics that is compared.
    :param index: order of the range within its topic.
    :param publish_time: whether the publish time is part of the content (it is in a copy made by the replicator).
    :param compacted: the range is the latest value of each key, from the beginning of the compacted topic to `last`.
    :param lookback: an earlier entry, at which a chunked message that ends in the range may begin; None if no compared
        entry lies before the range, or if whole entries are read.
    :param limited: compared entries lie before `lookback`.
    :param keyed: messages are hashed with the key in the environment.
    :param origin: only what came from there is read: see `is_from`.
    :param start: where the reading begins, if not at `first`.
    """

    pair: int
    index: int
    topic: str
    first: Position
    last: Position
    entries: int
    publish_time: bool
    compacted: bool = False
    lookback: Position | None = None
    limited: bool = False
    engine: EngineName = EngineName.MESSAGE
    keyed: bool = False
    origin: str = ""
    start: Position | None = None

    @property
    def tolerant(self) -> bool:
        """Whether a chunk without its first chunk is skipped: the entries before the range are not compared."""
        return self.lookback is None and not self.limited

    def from_lookback(self) -> Range:
        """The same range, read from `lookback` on."""
        return replace(self, start=self.lookback, lookback=None)

    def to_json(self) -> Json:
        """As a short JSON array, because a task may hold thousands of ranges."""
        ends = [self.first.ledger, self.first.entry, self.last.ledger, self.last.entry]
        back = [self.lookback.ledger, self.lookback.entry] if self.lookback else []
        letters = {
            "p": self.publish_time,
            "c": self.compacted,
            "l": self.limited,
            "e": self.engine is EngineName.ENTRY,
            "k": self.keyed,
        }
        flags = "".join(letter for letter, is_set in letters.items() if is_set)
        return [self.pair, self.index, self.topic, *ends, self.entries, flags, self.origin, *back]

    @classmethod
    def from_json(cls, document: Json) -> Self:
        """Read what `to_json` wrote."""
        pair, index, topic, ledger, entry, last_ledger, last_entry, entries, flags, origin, *back = document
        return cls(
            pair,
            index,
            topic,
            Position(ledger, entry),
            Position(last_ledger, last_entry),
            entries,
            publish_time="p" in flags,
            compacted="c" in flags,
            lookback=Position(*back) if back else None,
            limited="l" in flags,
            engine=EngineName.ENTRY if "e" in flags else EngineName.MESSAGE,
            keyed="k" in flags,
            origin=origin,
        )


def cut(
    bounds: TopicBounds,
    *,
    pair: int,
    publish_time: bool,
    entries_per_range: int = ENTRIES_PER_RANGE,
    engine: EngineName = EngineName.MESSAGE,
) -> Iterator[Range]:
    """Cut the bounds of one topic into ranges, in topic order; no range for a topic without entries."""
    index = 0
    for begin, end in bounds.parts():
        edges = [*range(begin, end, entries_per_range), end]
        for first, stop in pairwise(edges):
            back = max(begin, first - LOOKBACK_ENTRIES)
            # Engine `entry` compares an entry as it is stored, also if it is a chunk of a message.
            cut_in_two = first > begin and engine is EngineName.MESSAGE
            yield Range(
                pair,
                index,
                bounds.topic,
                bounds.ledgers.at(first),
                bounds.ledgers.at(stop - 1),
                stop - first,
                publish_time,
                lookback=bounds.ledgers.at(back) if cut_in_two else None,
                limited=cut_in_two and back > begin,
                engine=engine,
            )
            index += 1


def compacted_range(bounds: TopicBounds, *, pair: int, publish_time: bool) -> Iterator[Range]:
    """A compacted topic as one range: its latest values may lie anywhere, also before the oldest entry of the log."""
    if bounds.last is not None:
        yield Range(pair, 0, bounds.topic, EARLIEST, bounds.last, len(bounds), publish_time, compacted=True)


def group(ranges: Iterable[Range], *, entries_per_task: int = ENTRIES_PER_RANGE) -> list[list[Range]]:
    """Group small ranges, so that starting a task is worth its cost; each group holds at least one range."""
    groups: list[list[Range]] = []
    room = 0
    for entry_range in ranges:
        if not groups or entry_range.entries > room:
            groups.append([])
            room = entries_per_task
        groups[-1].append(entry_range)
        room -= entry_range.entries
    return groups


def entries_after(entry_range: Range, position: Position) -> int:
    """A lower bound of the number of entries of the range after `position`; 0 only at its last entry or after it.

    An entry holds at least one message, so that many messages can be read without checking their positions.
    """
    if position >= entry_range.last:
        return 0
    if position.ledger == entry_range.last.ledger:
        return entry_range.last.entry - position.entry
    return entry_range.last.entry + 1
