"""Which messages only one side would deliver, against sets of messages made by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics.cursors import Cursor
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import Address, Problem, VerifyRequest
from pulsar_fleet.verification.subscriptions.correspondence import (
    ByContent,
    Discrepancy,
    Listing,
    OneToOne,
    Portion,
    Unit,
)
from pulsar_fleet.verification.subscriptions.evaluate import assemble, evaluate_subscription, movement, type_note
from pulsar_fleet.verification.subscriptions.report import subscription_summary
from pulsar_fleet.verification.subscriptions.verdict import SubscriptionVerdict, TopicSubscriptions

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
    ],
)
def test_one_difference_decides(
    discrepancy: Discrepancy, source: SubscriptionCursor, target: SubscriptionCursor, verdict: Verdict
) -> None:
    assert evaluate_subscription("s", source, target, discrepancy).verdict is verdict


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


def test_what_was_decided_before_reading_decides_here_too() -> None:
    lost = Problem("acme/orders", f"{TOPIC}-2", True, "green has no such topic")
    request = VerifyRequest(source=HERE, target=HERE, namespaces=("acme/orders",), pairs=(), problems=(lost,))
    assert assemble(request, [topic(Verdict.EQUAL)]).verdict is Verdict.DIFFERENT
