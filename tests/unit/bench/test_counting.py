"""What the benches count: a bench that cannot see a loss would report none."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bench.applications import KEYS, RUN, Answer, Reading, is_stuck, partition_of, reading, silence, writers
from tests.bench.matrix_page import with_rows

SECOND = 1_000_000
ACKED = Answer({number: number * SECOND for number in range(200)})


@settings(max_examples=30)
@given(st.sets(st.integers(0, 199)), st.sets(st.integers(0, 199)), st.randoms(use_true_random=False))
def test_what_is_missing_and_what_comes_again_is_counted(
    lost: set[int], again: set[int], chance: random.Random
) -> None:
    got = [number for number in range(200) if number not in lost]
    repeated = sorted(again - lost)
    for number in repeated:
        got.insert(chance.randint(got.index(number) + 1, len(got)), number)
    assert reading(ACKED, got) == Reading(len(lost), len(repeated), 0)


def test_an_older_message_breaks_the_order_only_of_its_own_key() -> None:
    assert reading(ACKED, [*range(RUN), *range(RUN, 200)]).order_breaks == 0
    assert reading(ACKED, [*range(1, 200), 0]).order_breaks == 1
    assert reading(ACKED, [RUN, 0, *range(1, RUN), *range(RUN + 1, RUN * KEYS)]).order_breaks == 0


def test_a_silent_or_stuck_partition_is_seen_behind_one_that_goes_on() -> None:
    times = {number: number * 4000 for number in range(2500)}
    stuck = Answer({number: at for number, at in times.items() if partition_of(number, 2) or at < 5 * SECOND})
    assert [is_stuck(writer, 10 * SECOND) for writer in writers(stuck, 2)] == [True, False]
    paused = Answer({number: at for number, at in times.items() if not 4 * SECOND < at < 6 * SECOND})
    assert [round(silence(writer, 3 * SECOND), 1) for writer in writers(paused, 0)] == [2.0]
    assert [round(silence(writer, 7 * SECOND), 1) for writer in writers(paused, 0)] == [0.0]


def test_rows_of_other_clients_stay_in_the_page() -> None:
    begin, end = "<!-- matrix: made by make bench -->", "<!-- end of matrix -->"
    page = f"before\n{begin}\n| a | b |\n| --- | --- |\n| Go | by hand | 1 |\n| Java | by hand | 2 |\n{end}\nafter\n"
    assert with_rows(page, "matrix", ["| Java | by hand | 3 |", "| Java | runbook | 4 |"]) == page.replace(
        "| Java | by hand | 2 |", "| Java | by hand | 3 |\n| Java | runbook | 4 |"
    )
    empty = f"{begin}\n| a | b |\n| --- | --- |\n{end}"
    assert with_rows(empty, "matrix", ["| Go | by hand | 1 |"]).count("\n") == 4
