"""What a cursor leaves unread, against sets of positions made by brute force."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics import Cursor
from pulsar_fleet.messages.positions import Intervals, Ledgers, unread_entries

NUMBERS = st.frozensets(st.integers(0, 40))
RUNS = st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40)), max_size=12)
LEDGERS = st.lists(st.integers(0, 6), max_size=6).map(
    lambda sizes: [(3 + 2 * at, size) for at, size in enumerate(sizes)]
)
# Ledgers 0 to 2 are trimmed, even ones never were, and those behind the last are newer than the freeze.
POSITIONS = st.builds(Position, st.integers(-1, 17), st.integers(-1, 7))


def intervals(numbers: frozenset[int]) -> Intervals:
    return Intervals.of((number, number + 1) for number in numbers)


@given(RUNS)
def test_runs_in_any_order_are_the_shortest_form_of_their_numbers(runs: list[tuple[int, int]]) -> None:
    merged = Intervals.of(runs)
    expected = sorted({number for begin, end in runs for number in range(begin, end)})
    assert (list(merged), len(merged), list(merged.head(3))) == (expected, len(expected), expected[:3])
    assert (merged.first, merged.last) == ((expected[0], expected[-1]) if expected else (None, None))
    assert all(run[1] < following[0] for run, following in zip(merged.runs, merged.runs[1:], strict=False))


@given(NUMBERS, NUMBERS)
def test_sets_of_intervals_behave_as_sets(some: frozenset[int], others: frozenset[int]) -> None:
    first, right = intervals(some), intervals(others)
    assert first.minus(right) == intervals(some - others)
    assert first.union(right) == intervals(some | others)
    assert {number for number in range(-1, 42) if number in first} == some
    assert list(first.shifted(-7)) == sorted(number - 7 for number in some)


def test_a_million_unread_entries_are_one_interval() -> None:
    numbers = Ledgers(((1, 10**6),))
    assert unread_entries(Cursor(mark_delete=Position(1, -1)), numbers, 10**6).runs == ((0, 10**6),)


@given(LEDGERS, POSITIONS)
def test_a_position_counts_the_entries_up_to_it_wherever_it_points(
    ledgers: list[tuple[int, int]], position: Position
) -> None:
    positions = [Position(ledger, entry) for ledger, size in ledgers for entry in range(size)]
    numbers = Ledgers(tuple(run for run in ledgers if run[1]))
    assert numbers.index_after(position) == sum(entry <= position for entry in positions)
    assert [numbers.at(number) for number in range(len(numbers))] == positions


@settings(max_examples=250)
@given(LEDGERS, POSITIONS, st.lists(st.tuples(POSITIONS, POSITIONS), max_size=6), st.integers(0, 8))
def test_unread_entries_are_those_behind_the_cursor_that_no_range_holds(
    ledgers: list[tuple[int, int]], mark_delete: Position, ranges: list[tuple[Position, Position]], newer: int
) -> None:
    positions = [Position(ledger, entry) for ledger, size in ledgers for entry in range(size)]
    end = max(0, len(positions) - newer)
    expected = [
        number
        for number, entry in enumerate(positions[:end])
        if entry > mark_delete and not any(low < entry <= high for low, high in ranges)
    ]
    text = "[" + ",".join(f"({low}..{high}]" for low, high in ranges) + "]"
    numbers = Ledgers(tuple(run for run in ledgers if run[1]))
    assert list(unread_entries(Cursor(mark_delete=mark_delete, acknowledged=text), numbers, end)) == expected


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("[]", [3, 4, 5, 6]),
        ("[(1:3..1:4],(2:0..2:1]]", [3, 5]),
        ("[(1:3..1:4], (2:0..2:1]]", [3, 5]),
        ("[(1:-1..2:1]]", []),
        ("[[1:4..2:0)]", [3, 5, 6]),
    ],
)
def test_every_form_of_ranges_is_read(text: str, unread: list[int]) -> None:
    numbers = Ledgers(((1, 5), (2, 2)))
    assert list(unread_entries(Cursor(mark_delete=Position(1, 2), acknowledged=text), numbers, 7)) == unread


@pytest.mark.parametrize("text", ["", "[(1:3..1:4]", "[(1:3..1:4],…]", "1:3", "[(1:3-1:4]]"])
def test_ranges_that_cannot_be_read_are_never_taken_for_none(text: str) -> None:
    with pytest.raises(InvalidRequest, match="individuallyDeletedMessages"):
        unread_entries(Cursor(mark_delete=Position(1, 2), acknowledged=text), Ledgers(((1, 5),)), 5)
