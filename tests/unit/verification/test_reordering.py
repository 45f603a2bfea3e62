"""The same messages in another order: what moved, and whose order it breaks."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pulsar_fleet.messages.scan import MessageRecord
from pulsar_fleet.verification.messages.order import Disorder, find_disorder, match_messages


def message(name: str, entry: int) -> MessageRecord:
    """`name` is producer, key and a number, such as `a1-7`; the digest does not know the producer."""
    return MessageRecord(0, name[1:], 5, entry, -1, 0, None, None, name[1], None, "", None, "[]", name, 1, name[0])


def disorder(source: Sequence[str], target: Sequence[str]) -> Disorder:
    sides = [[message(name, entry) for entry, name in enumerate(side)] for side in (source, target)]
    return find_disorder(match_messages(*sides))


def moved(disordered: Disorder) -> list[tuple[str | None, str | None]]:
    return [(move.source, move.target) for move in disordered.moves]


def test_neighbours_of_one_producer_that_changed_places_are_one_move() -> None:
    disordered = disorder(["ak1", "ak2", "ak3", "ak4"], ["ak1", "ak3", "ak2", "ak4"])
    assert (moved(disordered), disordered.producers, disordered.keys) == ([("5:1", "5:2")], ("a",), ("k",))


def test_a_message_that_moved_far_is_named_without_the_displaced_ones() -> None:
    disordered = disorder(["ak1", "ak2", "ak3", "ak4", "ak5"], ["ak2", "ak3", "ak4", "ak5", "ak1"])
    assert moved(disordered) == [("5:0", "5:4")]


def test_two_interleaved_producers_keep_their_own_orders() -> None:
    disordered = disorder(["ak1", "bm2", "ak3", "bm4"], ["bm2", "ak1", "bm4", "ak3"])
    assert (disordered.producers, disordered.keys) == ((), ())
    assert disordered.reason.endswith("the order of each producer and of each key is kept")


def test_the_order_of_a_key_is_looked_at_across_producers() -> None:
    disordered = disorder(["ak1", "bk2", "am3"], ["bk2", "ak1", "am3"])
    assert (disordered.producers, disordered.keys) == ((), ("k",))


def test_an_order_that_breaks_around_a_message_that_stayed_is_seen() -> None:
    disordered = disorder(["ax1", "bm2", "ay3", "bn4", "cx5"], ["cx5", "bm2", "ay3", "bn4", "ax1"])
    assert disordered.producers == ("a",)


@pytest.mark.parametrize("copies", [1, 3])
def test_equal_messages_are_told_apart_by_their_turn(copies: int) -> None:
    assert disorder(["ak1"] * copies + ["ak2"], ["ak1"] * copies + ["ak2"]).moves == ()


def test_a_message_between_two_equal_ones_changes_places_with_the_nearest() -> None:
    assert moved(disorder(["ak1", "ak1", "ak2"], ["ak1", "ak2", "ak1"])) == [("5:1", "5:2")]


@pytest.mark.parametrize("broken", [["rc3", "rd4"], ["rc3", "sc4"]], ids=["of a producer", "of a key"])
def test_messages_that_break_an_order_are_the_first_of_the_displaced(broken: list[str]) -> None:
    sides = (["pa1", "qb2", *broken], ["qb2", "pa1", *reversed(broken)])
    displaced = match_messages(*([message(name, entry) for entry, name in enumerate(side)] for side in sides))
    assert [placed.at_source.payload for placed in displaced] == [*broken, "pa1", "qb2"]


def test_what_one_side_alone_holds_displaces_nothing() -> None:
    assert disorder(["ak1", "ak2", "ak3"], ["ak9", "ak2", "ak3"]).moves == ()
    assert disorder(["ak1", "ak2"], ["ak1", "ak1", "ak2"]).moves == ()


def test_messages_that_changed_places_are_named_beside_one_that_is_missing() -> None:
    disordered = disorder(["ak1", "ak2", "ak3", "ak4"], ["ak3", "ak2", "ak4"])
    assert (moved(disordered), disordered.keys) == ([("5:1", "5:1")], ("k",))
    beginning = "of the messages that both hold, 1 changed places; the order of producer 'a'"
    assert disordered.partial_reason.startswith(beginning)


def test_the_fewest_moves_restore_any_shuffled_order() -> None:
    names = [f"ak{number}" for number in range(60)]
    chance = random.Random(3)
    for _ in range(20):
        shuffled = [*names]
        taken = [shuffled.pop(chance.randrange(len(shuffled))) for _ in range(2)]
        for label in taken:
            shuffled.insert(chance.randrange(len(shuffled)), label)
        assert len(disorder(names, shuffled).moves) <= 2
