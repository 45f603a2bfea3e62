"""What a failover redelivers and loses, against sets of messages made by brute force."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import Cursor, TopicStats
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.replication.failover.forecast import CountedEntries
from pulsar_fleet.replication.failover.measure import Counter, forecast_topic
from pulsar_fleet.replication.failover.topic_copy import NOWHERE, ClusterTopic, ListedEntry, Place, TopicCopy

TOPIC = "persistent://acme/orders/events"
STATS = TopicStats.of(TopicName.parse(TOPIC), {})
MARKER = ""


@dataclass
class Side:
    """A topic on one cluster: names of entries in order, `MARKER` for a marker; what is acknowledged, by number."""

    names: list[str]
    acknowledged: set[int] | None
    confirmed: int

    def topic(self, subscription: str) -> ClusterTopic:
        ledgers = Ledgers(((3, len(self.names)),) if self.names else ())
        cursors = {} if self.acknowledged is None else {subscription: self._cursor(self.acknowledged)}
        return ClusterTopic(ledgers=ledgers, cursors=cursors, stats=STATS, replicated=self.confirmed)

    def _cursor(self, acknowledged: set[int]) -> SubscriptionCursor:
        mark = next((number for number in range(len(self.names)) if number not in acknowledged), len(self.names))
        unread = Intervals.of((number, number + 1) for number in range(len(self.names)) if number not in acknowledged)
        return SubscriptionCursor(
            mark_delete_index=mark,
            unread=unread,
            individually_acknowledged=Intervals(),
            replicated=True,
            cursor=Cursor(mark_delete=Position(3, mark - 1)),
        )

    def listed(self, own: str, begin: int = 0) -> list[ListedEntry]:
        return [
            ListedEntry(number, messages_in(name), "" if name.startswith(own) else "other", name.encode())
            for number, name in enumerate(self.names)
            if name != MARKER and number >= begin
        ]

    def unread(self) -> set[str]:
        if self.acknowledged is None:
            return set()
        return {name for number, name in enumerate(self.names) if number not in self.acknowledged} - {MARKER}


def messages_in(name: str) -> int:
    return 1 + int(name[1:]) % 3


def count(names: set[str]) -> int:
    return sum(map(messages_in, names))


@st.composite
def sides(draw: st.DrawFn, *, missing: bool = False) -> tuple[Side, Side]:
    """Entries f0, f1, … of producers on `from` and t0, t1, … on `to`, a first part of each replicated, and markers."""
    own = {letter: [f"{letter}{number}" for number in range(draw(st.integers(0, 12)))] for letter in "ft"}
    copied = {letter: draw(st.integers(0, len(names))) for letter, names in own.items()}
    both = []
    for letter, other in ("ft", "tf"):
        letters = draw(st.permutations([letter] * len(own[letter]) + [other] * copied[other] + [MARKER] * 3))
        rest = {letter: iter(names) for letter, names in own.items()}
        names = [next(rest[letter]) if letter else MARKER for letter in letters]
        waiting = own[letter][copied[letter] :]
        confirmed = names.index(waiting[0]) if waiting else len(names)
        acknowledged = set(draw(st.lists(st.integers(0, max(0, len(names) - 1)), max_size=len(names))))
        acknowledged |= set(range(draw(st.integers(0, len(names)))))
        both.append(Side(names, None if missing and letter == "t" else acknowledged, confirmed))
    return both[0], both[1]


def copy_of(on_from: Side, on_to: Side) -> TopicCopy:
    return TopicCopy.of(on_from.listed("f"), on_to.listed("t"))


@given(sides())
def test_counts_are_those_of_the_messages(both: tuple[Side, Side]) -> None:
    on_from, on_to = both
    (forecast,) = forecast_topic(TOPIC, on_from.topic("s"), on_to.topic("s"), copy_of(*both)).subscriptions
    acknowledged = set(on_from.names) - {MARKER} - on_from.unread()
    assert forecast.redelivered.messages == count(on_to.unread() & acknowledged)
    assert forecast.first.messages == count(on_to.unread() - acknowledged)
    lost = on_from.unread() - on_to.unread()
    assert forecast.lost.messages == count(lost)
    assert forecast.lost.skipped.messages == count(lost & set(on_to.names))
    assert forecast.lost.unreplicated.messages == count(lost - set(on_to.names))


@given(sides(missing=True))
def test_a_subscription_created_where_the_forecast_says_loses_nothing(
    both: tuple[Side, Side],
) -> None:
    on_from, on_to = both
    (forecast,) = forecast_topic(TOPIC, on_from.topic("s"), on_to.topic("s"), copy_of(*both)).subscriptions
    assert forecast.create_at is not None
    assert forecast.redelivered.messages == 0
    delivered = set(on_to.names[forecast.create_at :]) - {MARKER}
    unread = on_from.unread() & set(on_to.names)
    assert unread <= delivered
    assert set(on_to.names) - {MARKER} - set(on_from.names) <= delivered
    assert forecast.redelivered_if_created == count(delivered & (set(on_from.names) - on_from.unread()))
    assert forecast.lost.uncreated.messages == count(unread)


@given(sides(missing=True))
def test_a_carried_position_delivers_what_was_not_acknowledged(both: tuple[Side, Side]) -> None:
    on_from, on_to = both
    assert on_from.acknowledged is not None
    position = Counter(on_from.topic("s"), on_to.topic("s"), copy_of(*both)).position("s")
    delivered = {on_to.names[number] for number in position.unread(len(on_to.names))} - {MARKER}
    acknowledged = set(on_from.names) - {MARKER} - on_from.unread()
    assert delivered == set(on_to.names) - {MARKER} - acknowledged


@given(sides())
def test_listing_backwards_until_nothing_is_missing_counts_everything(both: tuple[Side, Side]) -> None:
    on_from, on_to = both
    topics = {Place.FROM: on_from.topic("s"), Place.TO: on_to.topic("s")}
    begins = {place: topic.first_unread for place, topic in topics.items()}
    while True:
        copy = TopicCopy.of(on_from.listed("f", begins[Place.FROM]), on_to.listed("t", begins[Place.TO]))
        back = [
            other
            for place, other in ((Place.FROM, Place.TO), (Place.TO, Place.FROM))
            if begins[other] and copy.looks_further_back(place, topics[place])
        ]
        if not back:
            break
        for place in back:
            begins[place] -= 1
    parts, whole = (
        forecast_topic(TOPIC, topics[Place.FROM], topics[Place.TO], listed) for listed in (copy, copy_of(*both))
    )
    assert parts == whole


@given(sides(), st.integers(0, 5))
def test_a_position_needs_no_entry_of_from_that_everybody_has_read(both: tuple[Side, Side], more: int) -> None:
    on_from, on_to = both
    topics = {Place.FROM: on_from.topic("s"), Place.TO: on_to.topic("s")}
    begins = {place: max(0, topic.first_unread - more) for place, topic in topics.items()}
    # What is not replicated to `from` has no copy there.
    begins[Place.TO] = min(begins[Place.TO], on_to.confirmed)
    while True:
        copy = TopicCopy.of(on_from.listed("f", begins[Place.FROM]), on_to.listed("t", begins[Place.TO]))
        if not begins[Place.TO] or not copy.looks_further_back(Place.FROM, topics[Place.FROM]):
            break
        begins[Place.TO] -= 1
    assert not copy.looks_further_back(Place.TO, topics[Place.TO], ("", "other"))
    whole = Counter(topics[Place.FROM], topics[Place.TO], copy_of(*both)).position("s")
    assert Counter(topics[Place.FROM], topics[Place.TO], copy).position("s") == whole


def test_all_unread_messages_are_lost_without_the_topic() -> None:
    on_from = Side(["f0", "f1", MARKER], {0}, 0)
    copy = TopicCopy.of(on_from.listed("f"), [])
    (forecast,) = forecast_topic(TOPIC, on_from.topic("s"), NOWHERE, copy).subscriptions
    assert (forecast.lost.messages, forecast.create_at, forecast.is_missing) == (2, None, True)


def test_copies_of_what_was_acknowledged_and_removed_are_redelivered() -> None:
    on_from, on_to = Side(["f5", "f6"], {0}, 2), Side(["f3", "f4", "f5", "f6"], {0}, 4)
    copy = copy_of(on_from, on_to)
    (forecast,) = forecast_topic(TOPIC, on_from.topic("s"), on_to.topic("s"), copy).subscriptions
    assert forecast.redelivered.messages == count({"f4", "f5"})
    assert forecast.first.messages == count({"f6"})


def test_messages_that_arrive_meanwhile_are_neither_lost_nor_redelivered() -> None:
    # t1 was published on `to` after it was read, and its copy came to `from` before that was read.
    on_from, on_to = Side(["f0", "t0", "f1", "t1"], {0, 1, 2}, 4), Side(["t0", "f0", "f1"], {0, 1}, 3)
    grown = replace(on_from.topic("s"), later=2)
    (forecast,) = forecast_topic(TOPIC, grown, on_to.topic("s"), copy_of(on_from, on_to)).subscriptions
    assert (forecast.lost.messages, forecast.redelivered.messages) == (0, count({"f1"}))
    assert not copy_of(on_from, on_to).looks_further_back(Place.FROM, grown)


entries = st.dictionaries(st.integers(0, 60), st.integers(1, 4))
numbers = st.sets(st.integers(0, 60))


@given(entries, numbers)
def test_counted_entries_are_sets_with_sizes(sizes: dict[int, int], chosen: set[int]) -> None:
    counted, interval = CountedEntries.of(sizes.items()), Intervals.of((n, n + 1) for n in chosen)
    assert counted.messages == sum(sizes.values())
    assert counted.within(interval).messages == sum(sizes[number] for number in sizes.keys() & chosen)
    assert counted.within(interval).union(counted.without(interval)) == counted
    assert set(counted.numbers) == sizes.keys()
    assert CountedEntries.from_json(counted.to_json()) == counted


@given(entries, st.integers(0, 100))
def test_the_head_is_the_longest_first_part_that_fits(sizes: dict[int, int], messages: int) -> None:
    head = CountedEntries.of(sizes.items()).head(messages)
    rest = sorted(sizes.keys() - set(head.numbers))
    assert head.messages <= messages
    assert not rest or head.messages + sizes[rest[0]] > messages
    assert all(number < rest[0] for number in head.numbers) if rest else True
