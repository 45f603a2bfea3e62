"""What the test of disturbed runs deals and counts: an uneven deck would leave a kind of disturbance out."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.disturbances import AT, GIVEN_UP, TASKS, Card, Ending, Hits, Kind, deal, shuffled_cards


@example(40, "0")
@given(st.integers(0, 100), st.text(max_size=3))
def test_every_card_is_dealt_once_and_kinds_evenly(number: int, seed: str) -> None:
    dice = random.Random(seed)
    cards = shuffled_cards(number, dice)
    rounds = deal(cards, dice)
    kinds = Counter(card.kind for card in cards)
    assert Counter(point.card for points in rounds for point in points) == Counter(cards)
    assert sum(kinds.values()) == number
    assert all(kinds[kind] >= number // 6 for kind in Kind)


@given(st.integers(1, 100), st.text(max_size=3))
def test_a_round_ends_once_and_its_points_are_in_the_order_of_the_tasks(number: int, seed: str) -> None:
    dice = random.Random(seed)
    for points in deal(shuffled_cards(number, dice), dice):
        *before, last = points
        tasks = [TASKS.index(point.task) for point in points if point.task]
        assert tasks == sorted(tasks)
        assert all(point.card.ending is Ending.CONTINUED for point in before)
        assert all(point.task in AT.get(point.card.kind, TASKS) for point in points if point.task)
        assert (last.task == "") == (last.card.ending is Ending.FINISHED)


def test_forty_points_give_runs_up_in_every_way_and_clear_finished_ones() -> None:
    endings = Counter(card.ending for card in shuffled_cards(40, random.Random("0")))
    assert all(endings[ending] for ending in GIVEN_UP)
    assert endings[Ending.FINISHED] >= 3


def test_a_card_that_missed_is_dealt_again_and_not_counted() -> None:
    hits, killed, cleared = Hits(), Card(Kind.TASK_KILLED), Card(Kind.TASK_CLEARED, Ending.FINISHED)
    hits.note(killed, "cut_over")
    hits.note(killed, None)
    hits.note(cleared, "cut_over")
    assert (hits.take_missed(), hits.take_missed()) == ([killed], [])
    lines = {line[:17].strip(): line[17:].split(maxsplit=1) for line in hits.table().splitlines()}
    assert lines["task killed"] == ["1", "cut_over 1"]
    assert lines["task cleared"] == ["1", "cut_over (in the finished run) 1"]
    assert (lines["onboarding"], lines["all"]) == (["0"], ["2"])
