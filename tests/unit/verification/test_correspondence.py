"""Which messages only one side would deliver, against sets of messages made by brute force."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.verification.test_judge import message

from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import Cursor
from pulsar_fleet.messages.copies import SOURCE_POSITION
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.protocol.stored_entry import StoredMessage
from pulsar_fleet.messages.ranges import Range, TopicBounds
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import Address, Pair, Problem, VerifyRequest
from pulsar_fleet.verification.subscriptions import compare
from pulsar_fleet.verification.subscriptions.compare import EntryMatcher, Unmatchable, Unread, _edges
from pulsar_fleet.verification.subscriptions.correspondence import (
    ByContent,
    Discrepancy,
    Listing,
    OneToOne,
    Portion,
    Unit,
)
from pulsar_fleet.verification.subscriptions.report import subscription_summary
from pulsar_fleet.verification.subscriptions.verdict import (
    SubscriptionVerdict,
    TopicSubscriptions,
    assemble,
    evaluate_subscription,
    movement,
    type_note,
)

HERE = Address("blue", "http://blue", "pulsar://blue")
REQUEST = VerifyRequest(source=HERE, target=HERE, namespaces=("acme/orders",), pairs=())
TOPIC = "persistent://acme/orders/events"
BATCHES = st.lists(st.integers(1, 4), min_size=1, max_size=20)
UNREAD = st.frozensets(st.integers(0, 19), max_size=20)


def intervals(numbers: frozenset[int]) -> Intervals:
    return Intervals.of((number, number + 1) for number in numbers)


def entries_of(batches: list[int], messages: int) -> list[int]:
    """For each message the number of its entry; batches are used again and again."""
    numbers = (number for number in range(messages) for _ in range(batches[number % len(batches)]))
    return [number for number, _ in zip(numbers, range(messages), strict=False)]


@given(st.integers(-5, 5), UNREAD, UNREAD)
def test_entries_that_are_shifted_compare_as_sets(shift: int, source: frozenset[int], target: frozenset[int]) -> None:
    discrepancy = OneToOne(shift).compare(intervals(source), intervals(target), examples=99)
    moved = {number - shift for number in source}
    assert (discrepancy.unit, discrepancy.source_unread, discrepancy.target_unread) == (
        Unit.ENTRIES,
        len(source),
        len(target),
    )
    assert list(discrepancy.redelivered.first) == [(number + shift, number) for number in sorted(target - moved)]
    assert list(discrepancy.skipped.first) == [(number + shift, number) for number in sorted(moved - target)]


@given(BATCHES, BATCHES, st.lists(st.integers(0, 3), max_size=20), UNREAD, UNREAD)
def test_messages_in_other_batches_and_with_equal_contents_compare_as_sets(
    source_batches: list[int],
    target_batches: list[int],
    contents: list[int],
    source: frozenset[int],
    target: frozenset[int],
) -> None:
    payloads = [bytes([content]) for content in contents]
    sides = [entries_of(batches, len(payloads)) for batches in (source_batches, target_batches)]
    listings = (Listing(payloads, np.array(entries, dtype=np.int64)) for entries in sides)
    discrepancy = ByContent.of(*listings).compare(intervals(source), intervals(target), examples=99)
    unread_at = [
        {at for at, entry in enumerate(entries) if entry in unread}
        for entries, unread in zip(sides, (source, target), strict=True)
    ]
    assert (discrepancy.redelivered.count, discrepancy.skipped.count) == (
        len(unread_at[1] - unread_at[0]),
        len(unread_at[0] - unread_at[1]),
    )
    assert set(discrepancy.skipped.first) == {(sides[0][at], sides[1][at]) for at in unread_at[0] - unread_at[1]}


def test_messages_of_one_side_are_redelivered_or_skipped_unless_left_out() -> None:
    source = Listing([b"lost", b"x"], np.array([7, 8]))
    target = Listing([b"own", b"x"], np.array([3, 4]))
    unread = Intervals(((0, 9),))
    correspondence = ByContent.of(source, target)
    assert correspondence.only_in_target(unread) == (3,)
    assert correspondence.compare(unread, unread, examples=9).redelivered == Portion(1, ((None, 3),))
    discrepancy = correspondence.without([3]).compare(unread, unread, examples=9)
    assert (discrepancy.redelivered, discrepancy.skipped) == (Portion(0), Portion(1, ((7, None),)))


def test_messages_that_the_target_stores_twice_are_redelivered() -> None:
    source = Listing([b"a", b"b", b"c"], np.array([0, 1, 2]))
    target = Listing([b"a", b"b", b"a", b"b", b"c", b"own"], np.arange(6))
    correspondence = ByContent.of(source, target)
    everything = correspondence.compare(Intervals(((0, 3),)), Intervals(((0, 6),)), examples=9)
    assert (everything.redelivered.count, everything.repeated, everything.skipped.count) == (3, 2, 0)
    # What the subscription read on the source is delivered again by its only copy: that copy is not repeated.
    read = correspondence.compare(Intervals(((2, 3),)), Intervals(((0, 6),)), examples=9)
    assert (read.redelivered.count, read.repeated) == (5, 2)


def state(type_: str = "Shared", replicated: bool = False, **properties: str) -> SubscriptionCursor:
    return SubscriptionCursor(
        mark_delete_index=0,
        unread=Intervals(),
        individually_acknowledged=Intervals(),
        type=type_,
        replicated=replicated,
        properties=properties,
        cursor=Cursor(mark_delete=Position(-1, -1)),
    )


@pytest.mark.parametrize(
    ("discrepancy", "source", "target", "verdict"),
    [
        (Discrepancy(unit=Unit.ENTRIES), state(), state(), Verdict.EQUAL),
        (Discrepancy(unit=Unit.ENTRIES), state(), state("Failover"), Verdict.EQUAL),
        (Discrepancy(unit=Unit.ENTRIES, skipped=Portion(1)), state(), state(), Verdict.DIFFERENT),
        (Discrepancy(unit=Unit.ENTRIES, redelivered=Portion(1)), state(), state(), Verdict.DIFFERENT),
        (Discrepancy(unit=Unit.ENTRIES), state(replicated=True), state(), Verdict.DIFFERENT),
        (Discrepancy(unit=Unit.ENTRIES), state(team="a"), state(team="b"), Verdict.DIFFERENT),
        (Discrepancy(unit=Unit.ENTRIES), state(team="a"), state(), Verdict.DIFFERENT),
        (Discrepancy(unit=Unit.ENTRIES), state(), state(team="b"), Verdict.DIFFERENT),
        (Discrepancy(unit=Unit.ENTRIES), state(team="a"), state(team="a"), Verdict.EQUAL),
    ],
)
def test_one_difference_decides(
    discrepancy: Discrepancy, source: SubscriptionCursor, target: SubscriptionCursor, verdict: Verdict
) -> None:
    assert evaluate_subscription("s", source, target, discrepancy).verdict is verdict


def test_a_verdict_counts_what_is_redelivered_skipped_and_repeated() -> None:
    discrepancy = Discrepancy(
        unit=Unit.MESSAGES,
        source_unread=9,
        target_unread=11,
        redelivered=Portion(3),
        skipped=Portion(1),
        repeated=2,
    )
    assert evaluate_subscription("s", state(), state(), discrepancy) == SubscriptionVerdict(
        subscription="s",
        verdict=Verdict.DIFFERENT,
        unit=Unit.MESSAGES,
        source_unread=9,
        target_unread=11,
        redelivered=3,
        skipped=1,
        repeated=2,
    )


@pytest.mark.parametrize(
    ("source_type", "target_type", "noted"), [("Shared", "Failover", True), ("None", "Shared", False)]
)
def test_a_type_is_noted_only_where_both_are_known(source_type: str, target_type: str, noted: bool) -> None:
    assert (type_note("s", state(source_type), state(target_type)) is not None) is noted


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Intervals(((2, 9),)), ""),
        (Intervals(((3, 9),)), "1 entry was read"),
        (Intervals(((0, 8),)), "1 entry was read and 2 entries were set back to unread"),
        (None, "it was deleted"),
    ],
)
def test_a_movement_says_what_happened(now: Intervals | None, words: str) -> None:
    assert movement(Intervals(((2, 9),)), now) == words


def topic(*verdicts: Verdict, topic_verdict: Verdict = Verdict.EQUAL) -> TopicSubscriptions:
    subscriptions = tuple(
        SubscriptionVerdict(subscription=f"s{at}", verdict=verdict) for at, verdict in enumerate(verdicts)
    )
    return TopicSubscriptions(
        topic=TOPIC,
        topic_verdict=topic_verdict,
        reason="" if topic_verdict is Verdict.EQUAL else "why",
        subscriptions=subscriptions,
    )


@pytest.mark.parametrize(
    ("topics", "verdict", "summary"),
    [
        ([], Verdict.INCONCLUSIVE, "inconclusive: nothing was compared"),
        ([topic()], Verdict.EQUAL, "equal: 0 subscriptions of 1 topic"),
        ([topic(Verdict.EQUAL)], Verdict.EQUAL, "equal: 1 subscription of 1 topic"),
        (
            [topic(Verdict.EQUAL, Verdict.INCONCLUSIVE)],
            Verdict.INCONCLUSIVE,
            "inconclusive: 1 of 2 subscriptions of 1 topic, first 's1': ",
        ),
        ([topic(topic_verdict=Verdict.INCONCLUSIVE)], Verdict.INCONCLUSIVE, f"inconclusive: {TOPIC}: why"),
    ],
)
def test_nothing_is_equal_by_default(topics: list[TopicSubscriptions], verdict: Verdict, summary: str) -> None:
    verification = assemble(REQUEST, topics)
    assert (verification.verdict, subscription_summary(verification.namespaces[0])) == (verdict, summary)
    assert verification.namespaces[0].unread == 0


@pytest.mark.parametrize(("different", "verdict"), [(True, Verdict.DIFFERENT), (False, Verdict.INCONCLUSIVE)])
def test_what_was_decided_before_reading_decides_here_too(different: bool, verdict: Verdict) -> None:
    lost = Problem("acme/orders", f"{TOPIC}-2", different, "green has no such topic")
    verification = assemble(replace(REQUEST, problems=(lost,)), [topic(Verdict.EQUAL)])
    assert verification.verdict is verdict
    counts = {Verdict.EQUAL: 1, Verdict.DIFFERENT: 0, Verdict.INCONCLUSIVE: 0}
    assert verification.by_verdict == {**counts, verdict: 1}


def test_a_namespace_about_which_nothing_is_known_is_inconclusive() -> None:
    two = replace(REQUEST, namespaces=("acme/orders", "acme/audit"))
    assert assemble(two, [topic(Verdict.EQUAL)]).verdict is Verdict.INCONCLUSIVE


class Cluster:
    """Answers which entry of the source an entry was made from; None for one that was published there."""

    def __init__(self, origins: Sequence[Position | None]) -> None:
        self.origins = origins
        self.asked: list[int] = []

    async def entry_properties(self, topic: TopicName, position: Position) -> dict[str, str]:
        self.asked.append(position.entry)
        origin = self.origins[position.entry]
        return {"x-pulsar-property": f'{{"{SOURCE_POSITION}": "{origin}"}}'} if origin else {}


class Stored:
    """An engine with one message in each entry; remembers what was read."""

    def __init__(self, contents: Sequence[str]) -> None:
        self.contents = contents
        self.read_from: list[int] = []

    def read(self, entry_range: Range) -> Iterator[list[StoredMessage]]:
        self.read_from.append(entry_range.first.entry)
        yield [stored(self.contents[at], at) for at in range(entry_range.first.entry, entry_range.last.entry + 1)]


def stored(content: str, entry: int) -> StoredMessage:
    return message(f"p-{content}", entry)._replace(ledger=8)


class Matched:
    """The correspondence of a topic of ten entries with its copy, and what finding it took.

    :param copies: for each entry of the copy the number of its original; None for one published there.
    """

    def __init__(
        self,
        copies: Sequence[int | None],
        source: Sequence[int],
        target: Sequence[int],
        *,
        replicated: bool = True,
        markers: bool = False,
    ) -> None:
        sizes = {Side.SOURCE: 10, Side.TARGET: len(copies)}
        ledgers = {side: Ledgers(((8, size),)) for side, size in sizes.items()}
        pair = Pair(TOPIC, *(TopicBounds(TOPIC, ledgers[side], 0, sizes[side]) for side in Side), replicated)
        self.cluster = Cluster([None if number is None else Position(8, number) for number in copies])
        texts = [
            [str(number) for number in range(10)],
            [f"own {at}" if n is None else str(n) for at, n in enumerate(copies)],
        ]
        self.engines = dict(zip(Side, map(Stored, texts), strict=True))
        matcher = EntryMatcher(cast(Any, None), cast(Any, self.cluster), self.engines, ("blue", "green"))
        unread = Unread(intervals(frozenset(source)), intervals(frozenset(target)))
        self.found = asyncio.run(matcher.find(pair, ledgers, unread, markers=markers))
        self.discrepancy = self.found.compare(unread.source, unread.target, examples=0)
        self.read_from = tuple(first for engine in self.engines.values() for first in engine.read_from)

    @property
    def counts(self) -> tuple[int, int]:
        return self.discrepancy.redelivered.count, self.discrepancy.skipped.count


@pytest.mark.parametrize(
    ("copies", "source", "target", "shift"),
    [
        (range(10), range(3, 10), range(3, 10), 0),
        (range(2, 10), range(4, 10), range(2, 8), 2),
        (range(2, 10), range(2, 10), range(8), 2),
        ([None, None, *range(10)], range(4, 10), range(6, 12), -2),
        ([0, 1, 2, *range(4, 10)], range(5, 10), range(4, 9), 1),
        (range(10), [0, *range(3, 10)], range(10), 0),
        (range(10), [], range(9, 10), 0),
        (range(10), [0], [], 0),
        ([0], [0], [0], 0),
    ],
    ids=[
        "same",
        "beginning lacks",
        "beginning lacks and nothing was read",
        "more before",
        "gap before the unread",
        "holes",
        "unread on one",
        "on the other",
        "one entry",
    ],
)
def test_copies_that_match_one_to_one_are_not_read(
    copies: Sequence[int | None], source: Sequence[int], target: Sequence[int], shift: int
) -> None:
    matched = Matched(copies, source, target)
    assert (matched.found, matched.read_from) == (OneToOne(shift), ())


@pytest.mark.parametrize(
    ("copies", "source", "target", "counts", "read_from"),
    [
        ([*range(9), None], range(3, 10), range(3, 10), (0, 1), (3, 3)),
        ([0, 1, 2, *range(4, 10)], range(10), range(9), (0, 1), (0, 0)),
        ([0, None, *range(1, 10)], range(1, 10), range(1, 11), (0, 0), (1, 1)),
        (range(2, 10), range(10), range(8), (0, 2), (0, 0)),
        (range(8), range(2, 10), range(2, 8), (0, 2), (2, 2)),
        (range(8), range(8, 10), [], (0, 2), (8,)),
        ([None, *range(10)], range(5, 10), [0, *range(6, 11)], (0, 0), (5, 0)),
        ([*range(10), None], range(9, 10), range(4, 11), (5, 0), (4, 4)),
        (range(2, 10), [0, 5], range(3, 4), (0, 1), (0, 3)),
        (range(8), [2, 9], [2], (0, 1), (2, 2)),
        ([*range(9), 12], range(3, 10), range(3, 10), (1, 1), (3, 3)),
        ([-2, -1, *range(8)], range(8), range(10), (2, 0), (0, 0)),
    ],
    ids=[
        "own at the end",
        "gap in the unread",
        "own in the unread",
        "beginning lacks",
        "end lacks",
        "end lacks and nothing unread",
        "own before all",
        "more unread on the target",
        "one of the beginning lacks",
        "one of the end lacks",
        "copy of what the source has not",
        "copies of what the source removed",
    ],
)
def test_other_copies_are_matched_by_messages_that_one_has_not_read(
    copies: Sequence[int | None],
    source: Sequence[int],
    target: Sequence[int],
    counts: tuple[int, int],
    read_from: tuple[int, ...],
) -> None:
    matched = Matched(copies, source, target)
    assert isinstance(matched.found, ByContent)
    assert (matched.counts, matched.read_from) == (counts, read_from)


def test_entries_that_nobody_has_unread_cost_nothing() -> None:
    matched = Matched([], [], [])
    assert (matched.found, matched.cluster.asked) == (OneToOne(0), [])


def test_without_source_positions_or_among_markers_the_messages_are_read() -> None:
    assert Matched(range(10), range(10), range(10), markers=True).read_from == (0, 0)
    by_application = Matched([*range(10), None], range(10), range(11), replicated=False)
    assert (by_application.counts, by_application.cluster.asked) == ((1, 0), []), "its own message is not told apart"


@pytest.mark.parametrize(
    ("runs", "checked"),
    [
        ([], []),
        ([(4, 5)], [4]),
        ([(4, 9)], [4, 8]),
        ([(0, 2), (4, 5), (7, 9)], [0, 1, 4, 7, 8]),
        ([(number * 2, number * 2 + 1) for number in range(31)], [number * 4 for number in range(16)]),
    ],
)
def test_both_ends_and_some_between_are_checked(runs: list[tuple[int, int]], checked: list[int]) -> None:
    assert _edges(Intervals(tuple(runs))) == checked


@pytest.mark.parametrize(
    ("name", "limit", "words"),
    [
        ("MOST_MESSAGES", 6, "on blue more than 6 messages would have to be read"),
        ("MOST_CALLS", 0, "1 unread entries of green are not unread on blue"),
    ],
)
def test_more_than_is_worth_its_cost_is_not_matched(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: int, words: str
) -> None:
    monkeypatch.setattr(compare, name, limit + 1)
    Matched([*range(9), None], range(3, 10), range(3, 10))
    monkeypatch.setattr(compare, name, limit)
    with pytest.raises(Unmatchable, match=words):
        Matched([*range(9), None], range(3, 10), range(3, 10))
