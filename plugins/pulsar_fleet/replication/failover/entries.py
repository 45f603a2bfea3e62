"""Entries of a topic with the number of messages in each, by entry number (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.messages.positions import Intervals


@dataclass(frozen=True, slots=True)
class CountedEntries(Document):
    """A set of entries and how many messages each of them holds: 10^6 unbatched messages are one interval.

    :param by_size: (messages in each entry, numbers of these entries), ascending, none empty.
    """

    by_size: tuple[tuple[int, Intervals], ...] = ()

    def document_of(self) -> Json:
        """An array for each size: the messages of an entry, and the intervals of entry numbers."""
        return [[size, [list(run) for run in numbers.runs]] for size, numbers in self.by_size]

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """The fields from that array."""
        if not isinstance(document, list):
            return document
        by_size = ((size, Intervals(tuple((begin, end) for begin, end in runs))) for size, runs in document)
        return {"by_size": tuple(by_size)}

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int]]) -> Self:
        """From (entry number, messages in it), in any order, each number once."""
        runs: dict[int, list[tuple[int, int]]] = {}
        for number, messages in entries:
            runs.setdefault(messages, []).append((number, number + 1))
        return cls(tuple((size, Intervals.of(runs[size])) for size in sorted(runs)))

    @property
    def messages(self) -> int:
        """The number of messages in all entries."""
        return sum(size * len(numbers) for size, numbers in self.by_size)

    @property
    def numbers(self) -> Intervals:
        """The numbers of all entries."""
        return Intervals.of(run for _, numbers in self.by_size for run in numbers.runs)

    def without(self, numbers: Intervals) -> Self:
        """The entries that are not among `numbers`."""
        return self._of_sizes((size, own.minus(numbers)) for size, own in self.by_size)

    def within(self, numbers: Intervals) -> Self:
        """The entries that are among `numbers`."""
        return self._of_sizes((size, own.minus(own.minus(numbers))) for size, own in self.by_size)

    def union(self, other: CountedEntries) -> Self:
        """The entries of both sets, which share none."""
        sizes = dict(self.by_size)
        for size, numbers in other.by_size:
            sizes[size] = sizes.get(size, Intervals()).union(numbers)
        return self._of_sizes((size, sizes[size]) for size in sorted(sizes))

    def head(self, messages: int) -> Self:
        """The first entries in topic order that hold at most this many messages together."""
        chosen: list[tuple[int, int]] = []
        for number, size in sorted((number, size) for size, numbers in self.by_size for number in numbers):
            if messages < size:
                break
            messages -= size
            chosen.append((number, size))
        return self.of(chosen)

    def _of_sizes(self, sizes: Iterable[tuple[int, Intervals]]) -> Self:
        return type(self)(tuple((size, numbers) for size, numbers in sizes if numbers))


NO_ENTRIES = CountedEntries()
