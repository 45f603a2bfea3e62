"""Where subscriptions stand, and where green's copies of the entries around them lie."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pulsar_fleet.cluster.cursors import Cursor
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import SOURCE_POSITION, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, replicated_up_to, subscription_cursors
from pulsar_fleet.migration.subscriptions.cursors import CARRIED_AT_MOST, Singles
from pulsar_fleet.migration.subscriptions.position_map import Copies
from pulsar_fleet.migration.subscriptions.transfer_plan import placements_text, planned

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
TWO_LEDGERS = Ledgers(((18, 10), (21, 5)))


def cursor(mark: str, alone: str = "[]") -> dict[str, str]:
    return {"markDeletePosition": mark, "individuallyDeletedMessages": alone}


def subscription(**changed: Any) -> dict[str, Any]:
    return {"isDurable": True, "consumers": [], "isReplicated": False, "subscriptionProperties": {}, **changed}


@pytest.mark.parametrize(
    ("held", "unread", "alone"),
    [
        (cursor("17:4"), 15, 0),
        (cursor("18:9"), 5, 0),
        (cursor("18:1", "[(18:3..18:5],(18:7..18:8]]"), 10, 3),
        (cursor("18:1", "[(18:8..21:1]]"), 10, 3),
        (cursor("21:4"), 0, 0),
    ],
    ids=["at the beginning", "at the end of a ledger", "with holes", "with a hole over two ledgers", "at the end"],
)
def test_a_cursor_is_read_in_entry_numbers(held: dict[str, str], unread: int, alone: int) -> None:
    stats = TopicStats.of(TOPIC, {"subscriptions": {"a+b": subscription()}})
    found = subscription_cursors(TWO_LEDGERS, stats, {"cursors": {"a%2Bb": held}})["a+b"]
    assert (len(found.unread), len(found.alone)) == (unread, alone)


def test_only_durable_subscriptions_of_applications_are_placed() -> None:
    names = ("billing", "reader-1", "__compaction", "pulsar.dedup")
    stats = {"subscriptions": {name: subscription(isDurable=name != "reader-1") for name in names}}
    cursors = {"cursors": {name: cursor("18:0") for name in names}}
    found = subscription_cursors(TWO_LEDGERS, TopicStats.of(TOPIC, stats), cursors)
    assert list(found) == ["billing"]


def test_how_far_the_replicator_came_is_read_from_its_cursor() -> None:
    numbers = TWO_LEDGERS
    assert replicated_up_to(numbers, {"cursors": {"pulsar.repl.green": cursor("21:0")}}, "green") == 11
    assert replicated_up_to(numbers, {"cursors": {}}, "green") is None


def acknowledged(behind: int, alone: Intervals, end: int, consumers: int = 0) -> SubscriptionCursor:
    return SubscriptionCursor(
        behind=behind,
        unread=Intervals.of([(behind, end)]).minus(alone),
        alone=alone,
        consumers=consumers,
        cursor=Cursor(mark_delete=Position(-1, -1)),
    )


def test_too_many_single_acknowledgments_come_again_and_the_plan_says_so() -> None:
    many = acknowledged(0, Intervals(((1, CARRIED_AT_MOST + 2),)), 200_000)
    few, busy = (
        acknowledged(2, Intervals(((5, 7),)), 200_000),
        acknowledged(0, Intervals(((5, 7),)), 200_000, consumers=3),
    )
    plans = planned(TOPIC, {"many": many, "few": few, "busy": busy}, Singles.CARRY)
    assert {one.subscription: one.redelivered for one in plans} == {"busy": 0, "few": 0, "many": CARRIED_AT_MOST + 1}
    text = placements_text(plans, hidden=True)
    assert f"In all {CARRIED_AT_MOST + 1:,} entries come again" in text
    assert "show them to nobody" in text


class Green:
    """The one call that finding copies makes: which entry of blue a stored entry was."""

    def __init__(self, entries: list[Position | None]) -> None:
        self.entries = entries
        self.calls = 0

    async def entry_properties(self, topic: TopicName, position: Position) -> dict[str, str]:
        self.calls += 1
        source = self.entries[position.entry]
        return {"x-pulsar-property": f'{{"{SOURCE_POSITION}": "{source}"}}'} if source else {}


def copied(blue: Ledgers, left_out: set[int], markers: set[int]) -> list[Position | None]:
    """Green's entries: blue's without some, with markers of green's own before others."""
    found: list[Position | None] = []
    for number in range(len(blue)):
        found += [None] * (number in markers) + ([] if number in left_out else [blue.at(number)])
    return found


@settings(max_examples=60)
@given(
    some.sets(some.integers(0, 14), max_size=4),
    some.sets(some.integers(0, 14), max_size=4),
    some.sets(some.integers(1, 13)),
)
async def test_the_copies_of_acknowledged_entries_are_found_whatever_lies_between(
    left_out: set[int], markers: set[int], acknowledged: set[int]
) -> None:
    entries = copied(TWO_LEDGERS, left_out, markers)
    copies = Copies(Green(entries), TOPIC, TWO_LEDGERS, Ledgers(((7, len(entries)),)))  # type: ignore[arg-type]
    found = await copies.of(Intervals.of((number, number + 1) for number in acknowledged))
    sources = {entries[number] for number in found} - {None}
    assert sources == {TWO_LEDGERS.at(number) for number in acknowledged - left_out}


async def test_entries_that_are_alike_on_both_sides_take_two_calls_for_each_run() -> None:
    green = Green(copied(TWO_LEDGERS, set(), set()))
    copies = Copies(green, TOPIC, TWO_LEDGERS, Ledgers(((7, 15),)))  # type: ignore[arg-type]
    assert await copies.of(Intervals(((3, 6), (9, 12)))) == Intervals(((3, 6), (9, 12)))
    assert green.calls == 4
