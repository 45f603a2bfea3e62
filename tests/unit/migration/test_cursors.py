"""Cursors in entry numbers, and the positions of green's copies of the entries around them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics.cursors import Cursor
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.messages.copies import SOURCE_POSITION, Copies
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, replicated_up_to, subscription_cursors
from pulsar_fleet.migration.subscriptions.position_map import PositionMap
from pulsar_fleet.migration.subscriptions.transfer_plan import (
    MAX_CARRIED,
    IndividuallyAcknowledged,
    plan_cursors,
    transfers_text,
)

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
TWO_LEDGERS = Ledgers(((18, 10), (21, 5)))


def cursor(mark: str, individually_acknowledged: str = "[]") -> dict[str, str]:
    return {"markDeletePosition": mark, "individuallyDeletedMessages": individually_acknowledged}


def subscription(**changed: Any) -> dict[str, Any]:
    return {"isDurable": True, "consumers": [], "isReplicated": False, "subscriptionProperties": {}, **changed}


@pytest.mark.parametrize(
    ("document", "unread", "individually_acknowledged"),
    [
        (cursor("17:4"), 15, 0),
        (cursor("18:9"), 5, 0),
        (cursor("18:1", "[(18:3..18:5],(18:7..18:8]]"), 10, 3),
        (cursor("18:1", "[(18:8..21:1]]"), 10, 3),
        (cursor("21:4"), 0, 0),
    ],
    ids=["at the beginning", "at the end of a ledger", "with holes", "with a hole over two ledgers", "at the end"],
)
def test_a_cursor_is_read_in_entry_numbers(
    document: dict[str, str], unread: int, individually_acknowledged: int
) -> None:
    stats = TopicStats.of(TOPIC, {"subscriptions": {"a+b": subscription()}})
    read = subscription_cursors(TWO_LEDGERS, stats, {"cursors": {"a%2Bb": document}})["a+b"]
    assert (len(read.unread), len(read.individually_acknowledged)) == (unread, individually_acknowledged)


def test_only_durable_subscriptions_of_applications_are_transferred() -> None:
    names = ("billing", "reader-1", "__compaction", "pulsar.dedup")
    stats = {"subscriptions": {name: subscription(isDurable=name != "reader-1") for name in names}}
    cursors = {"cursors": {name: cursor("18:0") for name in names}}
    read = subscription_cursors(TWO_LEDGERS, TopicStats.of(TOPIC, stats), cursors)
    assert list(read) == ["billing"]


def test_how_far_the_replicator_came_is_read_from_its_cursor() -> None:
    numbers = TWO_LEDGERS
    assert replicated_up_to(numbers, {"cursors": {"pulsar.repl.green": cursor("21:0")}}, "green") == 11
    assert replicated_up_to(numbers, {"cursors": {}}, "green") is None


def acknowledged(
    mark_delete_index: int, individually_acknowledged: Intervals, end: int, consumers: int = 0
) -> SubscriptionCursor:
    return SubscriptionCursor(
        mark_delete_index=mark_delete_index,
        unread=Intervals.of([(mark_delete_index, end)]).minus(individually_acknowledged),
        individually_acknowledged=individually_acknowledged,
        consumers=consumers,
        cursor=Cursor(mark_delete=Position(-1, -1)),
    )


def test_too_many_individual_acknowledgments_are_redelivered_and_reported() -> None:
    many = acknowledged(0, Intervals(((1, MAX_CARRIED + 2),)), 200_000)
    few, busy = (
        acknowledged(2, Intervals(((5, 7),)), 200_000),
        acknowledged(0, Intervals(((5, 7),)), 200_000, consumers=3),
    )
    plans = plan_cursors(TOPIC, {"many": many, "few": few, "busy": busy}, IndividuallyAcknowledged.CARRY)
    assert {plan.subscription: plan.redelivered for plan in plans} == {"busy": 0, "few": 0, "many": MAX_CARRIED + 1}
    text = transfers_text(plans, "east", "west", batch_index=True)
    assert f"Redelivered in total: {MAX_CARRIED + 1:,} entries" in text
    assert "no call returns them" in text


class Green:
    """The one call that finding copies makes: which entry of blue a stored entry was."""

    def __init__(self, entries: list[Position | None]) -> None:
        self.entries = entries
        self.calls = 0

    async def entry_properties(self, topic: TopicName, position: Position) -> dict[str, str]:
        self.calls += 1
        source = self.entries[position.entry]
        return {"x-pulsar-property": f'{{"{SOURCE_POSITION}": "{source}"}}'} if source else {}


def mapped_by(green: Green, copies: Ledgers) -> PositionMap:
    """A map by what green alone answers; blue is never asked where copies have source positions."""
    return PositionMap(Copies(green, green, TOPIC, TWO_LEDGERS, copies))  # type: ignore[arg-type]


def copied(blue: Ledgers, left_out: set[int], markers: set[int]) -> list[Position | None]:
    """Green's entries: blue's without some, with markers of green's own before others."""
    entries: list[Position | None] = []
    for number in range(len(blue)):
        entries += [None] * (number in markers) + ([] if number in left_out else [blue.at(number)])
    return entries


@settings(max_examples=60)
@given(
    some.sets(some.integers(0, 14), max_size=4),
    some.sets(some.integers(0, 14), max_size=4),
    some.sets(some.integers(1, 13)),
)
async def test_copies_of_acknowledged_entries_are_found_whatever_lies_between(
    left_out: set[int], markers: set[int], acknowledged: set[int]
) -> None:
    entries = copied(TWO_LEDGERS, left_out, markers)
    position_map = mapped_by(Green(entries), Ledgers(((7, len(entries)),)))
    mapped = await position_map.copies(Intervals.of((number, number + 1) for number in acknowledged))
    sources = {entries[number] for number in mapped} - {None}
    assert sources == {TWO_LEDGERS.at(number) for number in acknowledged - left_out}


async def test_identical_entries_take_two_calls_for_each_run() -> None:
    green = Green(copied(TWO_LEDGERS, set(), set()))
    position_map = mapped_by(green, Ledgers(((7, 15),)))
    assert await position_map.copies(Intervals(((3, 6), (9, 12)))) == Intervals(((3, 6), (9, 12)))
    assert green.calls == 4
