"""Which entries are read, and by which task (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Self

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.positions import Ledgers

ENTRIES_PER_RANGE = 10_000
"""Entries that one range holds at most; a range is what is read by one reader and retried as a whole."""

EARLIEST = Position(-1, -1)

LOOK_BACK = 1_000
"""Entries before a range among which the beginning of a message in chunks is looked for."""


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
    :param spans: where only parts of it are read, these, each as (begin, end), ascending.
    """

    topic: str
    ledgers: Ledgers
    begin: int
    end: int
    terminated: bool = False
    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def whole(cls, topic: str, internal_stats: JsonObject) -> Self:
        """All entries that `internalStats` shows."""
        ledgers = Ledgers.of(internal_stats)
        return cls(topic, ledgers, 0, len(ledgers), internal_stats.get("state") == "Terminated")

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self.parts())

    def parts(self) -> tuple[tuple[int, int], ...]:
        """What is read, as (begin, end)."""
        return self.spans or (((self.begin, self.end),) if self.end > self.begin else ())

    @property
    def first(self) -> Position | None:
        """Position of the first entry, None when there is none."""
        return self.ledgers.at(self.parts()[0][0]) if len(self) else None

    @property
    def last(self) -> Position | None:
        """Position of the last entry, None when there is none."""
        return self.ledgers.at(self.parts()[-1][1] - 1) if len(self) else None

    def to_json(self) -> JsonObject:
        """As a JSON object; part of a request, which carries the version."""
        return {
            "topic": self.topic,
            "ledgers": self.ledgers.runs,
            "begin": self.begin,
            "end": self.end,
            "terminated": self.terminated,
            "spans": self.spans,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        runs = tuple((int(ledger), int(entries)) for ledger, entries in found["ledgers"])
        spans = tuple((int(begin), int(end)) for begin, end in found["spans"])
        begin, end, terminated = int(found["begin"]), int(found["end"]), bool(found["terminated"])
        return cls(str(found["topic"]), Ledgers(runs), begin, end, terminated, spans)


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive entries of one topic, both ends included.

    :param pair: number of the pair of topics that is compared.
    :param index: order of the range within its topic.
    :param publish_time: whether the publish time belongs to the content (it does in a copy made by the replicator).
    :param final: it is the last entry of a terminated topic, and nothing else.
    :param compacted: it is the latest value of each key, from the compacted topic's beginning to `last`.
    :param lookback: an earlier entry from which a message in chunks that ends in the range may have begun; None where
        nothing of what is compared lies before, or where entries are read and not messages.
    :param limited: entries before `lookback` are compared too; or before a `final` range, which must not look back.
    :param engine: who reads it.
    :param keyed: messages are hashed with the key in the environment.
    :param start: where the reading begins, if not at `first`.
    """

    pair: int
    index: int
    topic: str
    first: Position
    last: Position
    entries: int
    publish_time: bool
    final: bool = False
    compacted: bool = False
    lookback: Position | None = None
    limited: bool = False
    engine: EngineName = EngineName.CLIENT
    keyed: bool = False
    start: Position | None = None

    @property
    def tolerant(self) -> bool:
        """Whether a chunk without its beginning is passed over: what came before it is not compared."""
        return self.lookback is None and not self.limited

    def reaching_back(self) -> Range:
        """The same range, read from where its first message may have begun."""
        return replace(self, start=self.lookback, lookback=None)

    def to_json(self) -> Json:
        """As a short JSON list: a task may hold thousands."""
        ends = [self.first.ledger, self.first.entry, self.last.ledger, self.last.entry]
        back = [self.lookback.ledger, self.lookback.entry] if self.lookback else []
        said = {
            "p": self.publish_time,
            "f": self.final,
            "c": self.compacted,
            "l": self.limited,
            "e": self.engine is EngineName.ENTRY,
            "k": self.keyed,
        }
        flags = "".join(letter for letter, holds in said.items() if holds)
        return [self.pair, self.index, self.topic, *ends, self.entries, flags, *back]

    @classmethod
    def from_json(cls, found: Json) -> Self:
        """Read what `to_json` wrote."""
        pair, index, topic, ledger, entry, last_ledger, last_entry, entries, flags, *back = found
        return cls(
            pair,
            index,
            topic,
            Position(ledger, entry),
            Position(last_ledger, last_entry),
            entries,
            publish_time="p" in flags,
            final="f" in flags,
            compacted="c" in flags,
            lookback=Position(*back) if back else None,
            limited="l" in flags,
            engine=EngineName.ENTRY if "e" in flags else EngineName.CLIENT,
            keyed="k" in flags,
        )


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
    index = 0
    for begin, end in bounds.parts():
        edges = [*range(begin, end, entries_per_range), end]
        if bounds.terminated and end == len(bounds.ledgers) and edges[-2] < end - 1:
            edges.insert(-1, end - 1)
        for first, behind in pairwise(edges):
            back = max(begin, first - LOOK_BACK)
            final = bounds.terminated and behind == len(bounds.ledgers)
            # An entry is compared as it lies there: also one that is a chunk of a message.
            cut_in_two = first > begin and engine is EngineName.CLIENT
            yield Range(
                pair,
                index,
                bounds.topic,
                bounds.ledgers.at(first),
                bounds.ledgers.at(behind - 1),
                behind - first,
                publish_time,
                final=final,
                lookback=bounds.ledgers.at(back) if cut_in_two and not final else None,
                limited=cut_in_two and (final or back > begin),
                engine=engine,
            )
            index += 1


def compacted_range(bounds: TopicBounds, *, pair: int, publish_time: bool) -> Iterator[Range]:
    """A compacted topic as one range: its latest values lie anywhere, also where the log holds nothing any more."""
    if bounds.last is not None:
        yield Range(pair, 0, bounds.topic, EARLIEST, bounds.last, len(bounds), publish_time, compacted=True)


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
