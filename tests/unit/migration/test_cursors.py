"""Cursors in entry numbers, and the positions of green's copies of the entries around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import Cursor, TopicStats
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.copies import REPLICATED_FROM, SOURCE_POSITION, Copies
from pulsar_fleet.messages.cursor_setting import MAX_CARRIED
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, replicated_up_to, subscription_cursors
from pulsar_fleet.migration.subscriptions.transfer import PositionMap
from pulsar_fleet.migration.subscriptions.transfer_plan import (
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


HOLES = Intervals(((5, 7),))
MOST, TOO_MANY = Intervals(((1, MAX_CARRIED + 1),)), Intervals(((1, MAX_CARRIED + 2),))
CARRY, REDELIVER = IndividuallyAcknowledged


@pytest.mark.parametrize(
    ("policy", "holes", "consumers", "redelivered", "words"),
    [
        (CARRY, Intervals(), 0, 0, "continues on west with 200,000 unread entries"),
        (CARRY, HOLES, 0, 0, "2 individually acknowledged entries acknowledged on west too"),
        (CARRY, MOST, 0, 0, "100,000 individually acknowledged entries acknowledged on west too"),
        (CARRY, TOO_MANY, 0, MAX_CARRIED + 1, "100,001 individually acknowledged entries **redelivered**"),
        (CARRY, TOO_MANY, 3, 0, "3 consumers first on east, with 99,999 unread entries, then on west"),
        (REDELIVER, HOLES, 0, 2, "2 individually acknowledged entries **redelivered**"),
        (REDELIVER, HOLES, 1, 0, "1 consumer first on east, with 199,998 unread entries, then on west"),
    ],
)
def test_what_is_redelivered_at_a_redirect_is_planned_and_reported(
    policy: IndividuallyAcknowledged, holes: Intervals, consumers: int, redelivered: int, words: str
) -> None:
    plans = plan_cursors(TOPIC, {"billing": acknowledged(0, holes, 200_000, consumers)}, policy)
    assert [plan.redelivered for plan in plans] == [redelivered]
    text = transfers_text(plans, "east", "west", batch_index=True)
    assert text.startswith(f"* `billing` on `{TOPIC}`: ")
    assert text.splitlines()[0].endswith(words)
    assert f"\n* Redelivered in total: {counted(redelivered, 'entry')}. " in text
    assert "no call returns them" in text


@pytest.mark.parametrize(
    ("rate", "holes", "redelivered"), [(0.0, Intervals(), 0), (1.1, Intervals(), 6), (1.1, HOLES, 8), (0.0, HOLES, 2)]
)
def test_a_repointed_subscription_gets_again_what_it_reads_in_a_poll(
    rate: float, holes: Intervals, redelivered: int
) -> None:
    plans = plan_cursors(TOPIC, {"billing": acknowledged(0, holes, 20, consumers=1)}, CARRY, {"billing": rate})
    assert [(plan.redelivered, plan.carried) for plan in plans] == [(redelivered, False)]
    assert ("gets nothing again" in plans[0].text("east", "west")) is (redelivered == 0)


def test_a_hundred_subscriptions_are_listed_and_all_are_counted() -> None:
    cursors = {f"s{number}": acknowledged(0, HOLES, 20) for number in range(101)}
    plans = plan_cursors(TOPIC, cursors, REDELIVER)
    text = transfers_text(plans, "east", "west", batch_index=False)
    assert (text.count("\n") + 1, "* … and 1 more subscriptions" in text) == (102, True)
    assert "Redelivered in total: 202 entries. A batch of which only some" in text
    assert "more subscriptions" not in transfers_text(plans[:100], "east", "west", batch_index=False)


class Stored(Enum):
    """An entry of green that is no copy."""

    MARKER = 1
    WRITTEN = 2


MARKER, WRITTEN = Stored.MARKER, Stored.WRITTEN
Entry = Position | Stored


class Green:
    """The one call that finding copies makes: which entry of blue a stored entry was."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.calls = 0

    async def entry_properties(self, topic: TopicName, position: Position) -> dict[str, str]:
        self.calls += 1
        entry = self.entries[position.entry]
        if isinstance(entry, Position):
            return {"x-pulsar-property": f'{{"{SOURCE_POSITION}": "{entry}"}}', REPLICATED_FROM: "blue"}
        return {"x-pulsar-marker-type": "10"} if entry is MARKER else {}


def mapped_by(green: Green, blue: Ledgers = TWO_LEDGERS) -> PositionMap:
    """A map by what green alone answers; blue is never asked where copies have source positions."""
    copies = Ledgers(((7, len(green.entries)),)) if green.entries else Ledgers(())
    return PositionMap(Copies(green, green, TOPIC, blue, copies))  # type: ignore[arg-type]


def copied(blue: Ledgers, left_out: set[int], others: Mapping[int, Stored]) -> list[Entry]:
    """Green's entries: blue's without some, with entries of green's own before others."""
    entries: list[Entry] = []
    for number in range(len(blue)):
        entries += [others[number]] if number in others else []
        entries += [] if number in left_out else [blue.at(number)]
    return entries


LEFT_OUT = some.sets(some.integers(0, 14), max_size=4)
OTHERS = some.dictionaries(some.integers(0, 14), some.sampled_from(Stored), max_size=4)


@settings(max_examples=60)
@given(LEFT_OUT, OTHERS, some.sets(some.integers(0, 14)))
async def test_copies_of_acknowledged_entries_are_found_whatever_lies_between(
    left_out: set[int], others: dict[int, Stored], acknowledged: set[int]
) -> None:
    entries = copied(TWO_LEDGERS, left_out, others)
    mapped = await mapped_by(Green(entries)).copies(Intervals.of((number, number + 1) for number in acknowledged))
    sources = {entries[number] for number in mapped} - {MARKER, WRITTEN}
    assert sources == {TWO_LEDGERS.at(number) for number in acknowledged - left_out}


@settings(max_examples=60)
@given(LEFT_OUT, OTHERS, some.lists(some.integers(0, 15), min_size=1, max_size=4))
async def test_a_cursor_leaves_no_unread_copy_behind_and_no_read_one_before_it(
    left_out: set[int], others: dict[int, Stored], numbers: list[int]
) -> None:
    entries = copied(TWO_LEDGERS, left_out, others)
    position_map = mapped_by(Green(entries))
    for number in numbers:
        before = [TWO_LEDGERS.at(earlier) for earlier in range(number)]
        read = [index for index, entry in enumerate(entries) if entry in before]
        unread = [index for index, entry in enumerate(entries) if entry not in (*before, MARKER, WRITTEN)]
        last_read, first_unread = max(read, default=-1) + 1, min(unread, default=len(entries))
        assert last_read <= await position_map.count_before(number) <= first_unread
        assert await position_map.count_acknowledged(number, Position(18, number - 1)) == last_read


@pytest.mark.parametrize(("mark_delete", "count"), [("16:9", 0), ("17:0", 1), ("17:2", 3), ("18:-1", 3)])
async def test_a_cursor_before_all_that_blue_holds_is_found_among_older_copies(mark_delete: str, count: int) -> None:
    older: list[Entry] = [Position(17, entry) for entry in range(3)]
    position_map = mapped_by(Green([*older, WRITTEN, *copied(TWO_LEDGERS, {0}, {})]))
    assert await position_map.count_acknowledged(0, Position.parse(mark_delete)) == count
    assert await position_map.count_before(0) == 3


async def test_where_blue_holds_nothing_all_copies_were_read() -> None:
    assert await mapped_by(Green([Position(17, 0), MARKER, Position(17, 1)]), Ledgers(())).count_before(0) == 3


@pytest.mark.parametrize("older", [0, 3], ids=["the same entries", "entries that blue removed too"])
async def test_identical_entries_take_two_calls_for_each_run(older: int) -> None:
    removed: list[Entry] = [Position(17, entry) for entry in range(older)]
    green = Green([*removed, *copied(TWO_LEDGERS, set(), {})])
    expected = Intervals(((3, 6), (9, 12))).shifted(older)
    assert await mapped_by(green).copies(Intervals(((3, 6), (9, 12)))) == expected
    assert green.calls == 4


async def test_behind_a_gap_one_call_confirms_the_distance() -> None:
    green = Green(copied(TWO_LEDGERS, {2}, {12: MARKER}))
    position_map = mapped_by(green)
    assert await position_map.count_before(5) == 4
    searched = green.calls
    assert (await position_map.count_before(8), green.calls - searched) == (7, 1)


@pytest.mark.parametrize(
    ("written", "begin", "end", "first"),
    [
        ((), 0, 2100, 2000),
        ((), 7, 50, 50),
        ((7, 9), 7, 50, 7),
        ((7, 9), 8, 50, 9),
        ((50,), 7, 50, 50),
        ((70, 71), 7, 200, 70),
        ((71, 72), 7, 200, 71),
        ((2003,), 7, 2100, 2003),
        ((2050,), 7, 2100, 2007),
        ((3,), 9, 9, 9),
    ],
)
async def test_no_cursor_passes_an_entry_that_a_producer_wrote_to_green(
    written: tuple[int, ...], begin: int, end: int, first: int
) -> None:
    entries = [WRITTEN if number in written else MARKER if number % 2 else Position(18, 0) for number in range(2100)]
    assert await mapped_by(Green(entries)).first_written(begin, end) == first


@pytest.mark.parametrize(
    ("number", "origin"), [(0, "-1:-1"), (1, "18:0"), (2, "18:1"), (4, "18:1"), (65, "18:1"), (66, "-1:-1")]
)
async def test_a_cursor_on_green_is_told_as_the_last_copy_before_it(number: int, origin: str) -> None:
    entries: list[Entry] = [Position(18, 0), Position(18, 1), *[MARKER, WRITTEN] * 40]
    assert await mapped_by(Green(entries)).last_original(number) == Position.parse(origin)
