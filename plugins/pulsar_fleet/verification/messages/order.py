"""The same messages in another order: which ones changed places, and which orders are broken (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from pulsar_fleet.messages.scan import MessageRecord
from pulsar_fleet.verification.messages.differences import Difference, Kind, position_text

MOST_DISPLACED = 10_000
"""The most displaced messages that are analysed; one message that moves far displaces all messages between."""


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """One message with its places, counted from 0, among the messages that both clusters have.

    :param in_producer: its ordinal among the messages of its producer differs between the clusters.
    :param in_key: its ordinal among the messages of its key differs.
    """

    at_source: MessageRecord
    at_target: MessageRecord
    source: int
    target: int
    in_producer: bool
    in_key: bool

    @property
    def breaks_order(self) -> bool:
        """Whether the order of its producer or of its key is broken."""
        return self.in_producer or self.in_key

    @property
    def displaced(self) -> bool:
        """Whether any of its places differs."""
        return self.source != self.target or self.breaks_order


@dataclass(frozen=True, slots=True)
class Disorder:
    """The disorder of one topic.

    :param moves: a smallest set of messages to move to restore the order, in the order of the source.
    """

    moves: tuple[Difference, ...]
    producers: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def is_harmless(self) -> bool:
        """Whether the messages of every producer and key kept their order, which is all that Pulsar promises."""
        return not (self.producers or self.keys)

    @property
    def note(self) -> str:
        """A harmless disorder in one sentence."""
        return (
            f"{self._moved}: only messages of different producers and keys lie differently between each other, which "
            "Pulsar does not promise to keep; order 'total' counts it as a difference"
        )

    @property
    def reason(self) -> str:
        """The disorder in one sentence."""
        return f"the same messages in another order: {self._moved}"

    @property
    def partial_reason(self) -> str:
        """The disorder in one sentence, for a topic in which other messages differ."""
        return f"of the messages that both hold, {self._moved}"

    @property
    def _moved(self) -> str:
        broken = [
            f"{what} {', '.join(repr(name) for name in names[:3])}{' …' if len(names) > 3 else ''}"
            for what, names in (("of producer", self.producers), ("of key", self.keys))
            if names
        ]
        orders = (
            f"the order {' and '.join(broken)} is broken"
            if broken
            else "the order of each producer and of each key is kept"
        )
        return f"{len(self.moves):,} changed places; {orders}"


def match_messages(source: Iterable[MessageRecord], target: Iterable[MessageRecord]) -> list[PlacedMessage]:
    """The common messages that have different places among the common messages; equal contents match in order."""
    places: dict[str, list[tuple[int, MessageRecord]]] = defaultdict(list)
    for number, record in enumerate(target):
        places[record.digest].append((number, record))
    taken: dict[str, int] = defaultdict(int)
    matched: list[tuple[int, MessageRecord, int, MessageRecord]] = []
    for record in source:
        copies, used = places.get(record.digest, ()), taken[record.digest]
        if used < len(copies):
            place, copy = copies[used]
            taken[record.digest] += 1
            matched.append((len(matched), record, place, copy))
    ranks = {place: rank for rank, place in enumerate(sorted(place for _, _, place, _ in matched))}
    matched = [(number, record, ranks[place], copy) for number, record, place, copy in matched]
    producers = _out_of_order([(record.producer, place) for _, record, place, _ in matched])
    keys = _out_of_order([(record.key, place) for _, record, place, _ in matched])
    placed = (
        PlacedMessage(record, copy, number, place, number in producers, number in keys)
        for number, record, place, copy in matched
    )
    return sorted((record for record in placed if record.displaced), key=lambda record: not record.breaks_order)


def _out_of_order(owned: Sequence[tuple[Hashable, int]]) -> frozenset[int]:
    """The messages whose ordinal among the messages of their owner differs; messages without an owner are ignored."""
    by_owner: dict[Hashable, list[int]] = defaultdict(list)
    for number, (owner, _) in enumerate(owned):
        if owner is not None:
            by_owner[owner].append(number)
    moved: set[int] = set()
    for numbers in by_owner.values():
        as_target = sorted(numbers, key=lambda number: owned[number][1])
        moved.update(first for first, second in zip(numbers, as_target, strict=True) if first != second)
    return frozenset(moved)


def find_disorder(displaced: Sequence[PlacedMessage]) -> Disorder:
    """A smallest set of moved messages: all except a longest sequence that ascends on both clusters."""
    ordered = sorted(displaced, key=lambda message: message.source)
    stayed = _longest_ascent([message.target for message in ordered])
    moves = tuple(_move(message) for number, message in enumerate(ordered) if number not in stayed)
    return Disorder(
        moves,
        tuple(sorted({message.at_source.producer for message in ordered if message.in_producer})),
        tuple(
            sorted(
                {message.at_source.key for message in ordered if message.in_key and message.at_source.key is not None}
            )
        ),
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
    members: set[int] = set()
    at = top_at[-1] if top_at else None
    while at is not None:
        members.add(at)
        at = before[at]
    return frozenset(members)


def _move(message: PlacedMessage) -> Difference:
    record = message.at_source
    places = ("place", f"{message.source + 1:,}", f"{message.target + 1:,}")
    return Difference(
        Kind.REORDERED,
        position_text(record),
        position_text(message.at_target),
        record.key,
        record.publish_time,
        record.producer,
        (places,),
    )
