"""The same messages in another order: which of them changed places, and whose order it breaks (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from pulsar_fleet.messages.scan import Sighting
from pulsar_fleet.verification.messages.differences import Difference, Kind, place_of

MOST_DISPLACED = 10_000
"""Messages in other places that are looked at; one that moves far displaces all between."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One message with its places, counted from 0, among those that both sides hold.

    :param in_producer: it is not the same message in number of its producer on both sides.
    :param in_key: nor of its key.
    """

    at_source: Sighting
    at_target: Sighting
    source: int
    target: int
    in_producer: bool
    in_key: bool

    @property
    def displaced(self) -> bool:
        """Whether anything about its place differs."""
        return self.source != self.target or self.in_producer or self.in_key


@dataclass(frozen=True, slots=True)
class Disorder:
    """What is out of order in one topic.

    :param moves: the fewest messages that have to be moved to restore the order, in the order of the source.
    """

    moves: tuple[Difference, ...]
    producers: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def reason(self) -> str:
        """In one sentence."""
        return f"the same messages in another order: {self._moved}"

    @property
    def beside(self) -> str:
        """In one sentence, where other messages are not the same."""
        return f"of the messages that both hold, {self._moved}"

    @property
    def _moved(self) -> str:
        broken = [
            f"{what} {', '.join(repr(each) for each in names[:3])}{' …' if len(names) > 3 else ''}"
            for what, names in (("of producer", self.producers), ("of key", self.keys))
            if names
        ]
        orders = (
            f"the order {' and '.join(broken)} is broken"
            if broken
            else "the order of each producer and of each key is kept"
        )
        return f"{len(self.moves):,} changed places; {orders}"


def pair_up(source: Iterable[Sighting], target: Iterable[Sighting]) -> list[Placed]:
    """Of the messages that both sides hold, those not in the same place among them; equal ones by their turn."""
    places: dict[str, list[tuple[int, Sighting]]] = defaultdict(list)
    for number, each in enumerate(target):
        places[each.digest].append((number, each))
    taken: dict[str, int] = defaultdict(int)
    matched: list[tuple[int, Sighting, int, Sighting]] = []
    for each in source:
        copies, turn = places.get(each.digest, ()), taken[each.digest]
        if turn < len(copies):
            there, copy = copies[turn]
            taken[each.digest] += 1
            matched.append((len(matched), each, there, copy))
    ranks = {there: rank for rank, there in enumerate(sorted(there for _, _, there, _ in matched))}
    matched = [(number, each, ranks[there], copy) for number, each, there, copy in matched]
    producers = _turned([(each.producer, there) for _, each, there, _ in matched])
    keys = _turned([(each.key or None, there) for _, each, there, _ in matched])
    found = (
        Placed(each, copy, number, there, number in producers, number in keys) for number, each, there, copy in matched
    )
    return [each for each in found if each.displaced]


def _turned(owned: Sequence[tuple[Hashable, int]]) -> frozenset[int]:
    """Which messages are, among those of their owner, not in the same turn on both sides; nobody owns None's."""
    by_owner: dict[Hashable, list[int]] = defaultdict(list)
    for number, (owner, _) in enumerate(owned):
        if owner is not None:
            by_owner[owner].append(number)
    turned: set[int] = set()
    for numbers in by_owner.values():
        as_target = sorted(numbers, key=lambda number: owned[number][1])
        turned.update(one for one, other in zip(numbers, as_target, strict=True) if one != other)
    return frozenset(turned)


def find_disorder(displaced: Sequence[Placed]) -> Disorder:
    """The fewest messages that moved: all but a longest run that ascends on both sides."""
    ordered = sorted(displaced, key=lambda each: each.source)
    stayed = _longest_ascent([each.target for each in ordered])
    moves = tuple(_move(each) for number, each in enumerate(ordered) if number not in stayed)
    return Disorder(
        moves,
        tuple(sorted({each.at_source.producer for each in ordered if each.in_producer})),
        tuple(sorted({each.at_source.key for each in ordered if each.in_key})),
    )


def _longest_ascent(values: Sequence[int]) -> frozenset[int]:
    """Indices of a longest ascending subsequence, by patience sorting."""
    tops: list[int] = []
    top_at: list[int] = []
    before: list[int | None] = []
    for index, value in enumerate(values):
        pile = bisect_left(tops, value)
        before.append(top_at[pile - 1] if pile else None)
        tops[pile : pile + 1] = [value]
        top_at[pile : pile + 1] = [index]
    found: set[int] = set()
    at = top_at[-1] if top_at else None
    while at is not None:
        found.add(at)
        at = before[at]
    return frozenset(found)


def _move(each: Placed) -> Difference:
    here, there = each.at_source, each.at_target
    places = ("place", f"{each.source + 1:,}", f"{each.target + 1:,}")
    return Difference(
        Kind.REORDERED, place_of(here), place_of(there), here.key, here.publish_time, here.producer, (places,)
    )
