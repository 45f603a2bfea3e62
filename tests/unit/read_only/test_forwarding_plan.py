"""What is sent to the owner: everything that consumers of the shadow topic have acknowledged, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics import Cursor, SubscriptionStats
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.read_only.forwarding.results import ForwardingPlan, acknowledged, listed_entries, plan_forwarding

ENTRIES = 40
SETS = st.sets(st.integers(0, ENTRIES - 1), max_size=ENTRIES)
CURSORS = st.builds(lambda mark, holes: set(range(mark)) | holes, st.integers(0, ENTRIES), SETS)


def numbers(entries: set[int]) -> Intervals:
    return Intervals.of((entry, entry + 1) for entry in entries)


def after(owner: set[int], plan: ForwardingPlan, *, only_position: bool = False) -> set[int]:
    """What the owner's subscription has acknowledged when the broker has done what is sent."""
    moved = owner | set(range(plan.position or 0))
    return moved if only_position else moved | set(plan.individual)


@given(shadow=CURSORS, owner=CURSORS, listed=SETS)
def test_the_owner_gets_what_consumers_acknowledged_and_keeps_its_own(
    shadow: set[int], owner: set[int], listed: set[int]
) -> None:
    plan = plan_forwarding(numbers(shadow), numbers(owner), numbers(listed))
    assert after(owner, plan) == owner | (shadow & listed)
    assert set(plan.missing) == (shadow & listed) - owner
    assert plan.ahead == len(owner - shadow)


@given(shadow=CURSORS, owner=CURSORS, listed=SETS)
def test_a_forwarder_killed_after_the_position_invented_nothing(
    shadow: set[int], owner: set[int], listed: set[int]
) -> None:
    plan = plan_forwarding(numbers(shadow), numbers(owner), numbers(listed))
    between = after(owner, plan, only_position=True)
    assert between <= owner | (shadow & listed)
    rest = plan_forwarding(numbers(shadow), numbers(between), numbers(listed))
    assert after(between, rest) == owner | (shadow & listed)


@given(shadow=CURSORS, owner=CURSORS, later=CURSORS)
def test_what_the_owner_acknowledges_meanwhile_is_never_taken_back(
    shadow: set[int], owner: set[int], later: set[int]
) -> None:
    plan = plan_forwarding(numbers(shadow), numbers(owner), numbers(set(range(ENTRIES))))
    assert after(owner | later, plan) == owner | later | shadow


@given(shadow=CURSORS, owner=CURSORS)
def test_a_second_pass_sends_nothing(shadow: set[int], owner: set[int]) -> None:
    everything = numbers(set(range(ENTRIES)))
    plan = plan_forwarding(numbers(shadow), numbers(owner), everything)
    again = plan_forwarding(numbers(shadow), numbers(after(owner, plan)), everything)
    assert (again.position, len(again.individual), len(again.missing)) == (None, 0, 0)


@given(mark=st.integers(0, ENTRIES), owner_mark=st.integers(0, ENTRIES))
def test_without_holes_one_position_is_sent_and_never_an_earlier_one(mark: int, owner_mark: int) -> None:
    everything = Intervals.of([(0, ENTRIES)])
    plan = plan_forwarding(Intervals.of([(0, mark)]), Intervals.of([(0, owner_mark)]), everything)
    assert plan.position == (mark if mark > owner_mark else None)
    assert len(plan.individual) == 0


def test_a_cursor_is_everything_up_to_its_position_and_its_holes() -> None:
    ledgers = Ledgers(((7, 5), (9, 5)))
    cursor = Cursor(mark_delete=Position(7, 1), acknowledged="[(7:2..7:3],(7:4..9:1]]")
    subscription = SubscriptionStats.of("s", {})
    assert set(acknowledged(SubscriptionCursor.of(ledgers, 10, cursor, subscription))) == {0, 1, 3, 5, 6}


def test_entries_that_the_shadow_topic_does_not_list_are_unacknowledged() -> None:
    source = Ledgers(((7, 5), (9, 5), (12, 3)))
    assert set(listed_entries(source, Ledgers(((7, 4), (9, 5), (11, 8))))) == {0, 1, 2, 3, 5, 6, 7, 8, 9}
    assert set(listed_entries(source, Ledgers(((3, 4), (7, 5), (9, 9))))) == set(range(10))
