"""Choosing topics and cutting them into ranges, from real `internalStats` documents."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.datasource import partitions
from pulsar_fleet.messages.datasource.options import TopicOptions
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EngineName, Range, TopicBounds, compacted_range, cut, entries_after, group

TOPIC = "persistent://acme/orders/events"


def stats(last: str, *ledgers: tuple[int, int]) -> dict[str, object]:
    return {
        "lastConfirmedEntry": last,
        "ledgers": [{"ledgerId": ledger, "entries": entries, "size": 0} for ledger, entries in ledgers],
    }


def bounds(*ledgers: tuple[int, int]) -> TopicBounds:
    all_ledgers = Ledgers(ledgers)
    return TopicBounds(TOPIC, all_ledgers, 0, len(all_ledgers))


def ranges(of: TopicBounds, entries: int) -> list[Range]:
    return list(cut(of, pair=0, publish_time=True, entries_per_range=entries))


def test_the_open_ledger_ends_at_the_last_confirmed_entry() -> None:
    topic_bounds = TopicBounds.whole(TOPIC, stats("7:20", (5, 10), (7, 0)))
    assert (topic_bounds.first, topic_bounds.last, len(topic_bounds)) == (Position(5, 0), Position(7, 20), 31)


def test_a_topic_whose_open_ledger_is_empty_ends_in_the_one_before() -> None:
    assert TopicBounds.whole(TOPIC, stats("9:-1", (5, 10), (9, 0))).last == Position(5, 9)


def test_a_topic_without_entries_has_no_bounds_and_no_ranges() -> None:
    topic_bounds = TopicBounds.whole(TOPIC, stats("7:-1", (7, 0)))
    assert (topic_bounds.first, topic_bounds.last, ranges(topic_bounds, 10)) == (None, None, [])


def test_a_range_may_cross_ledgers() -> None:
    parts = ranges(bounds((5, 3), (8, 4)), 5)
    assert [(str(part.first), str(part.last), part.entries) for part in parts] == [("5:0", "8:1", 5), ("8:2", "8:3", 2)]


def test_bounds_leave_out_what_lies_before_and_behind_them() -> None:
    inside = TopicBounds(TOPIC, Ledgers(((5, 3), (8, 4))), 2, 5)
    assert [(str(part.first), str(part.last)) for part in ranges(inside, 10)] == [("5:2", "8:1")]


@given(st.lists(st.integers(1, 30), max_size=6), st.integers(1, 40))
def test_ranges_cover_every_entry_once(sizes: list[int], entries: int) -> None:
    whole = bounds(*enumerate(sizes))
    assert [part.index for part in ranges(whole, entries)] == list(range(-(-sum(sizes) // entries)))
    assert sum(part.entries for part in ranges(whole, entries)) == sum(sizes)


def test_small_topics_share_a_task_and_large_ones_have_their_own() -> None:
    small, large = ranges(bounds((1, 3)), 10), ranges(bounds((1, 25)), 10)
    assert [[part.entries for part in task] for task in group([*small, *small, *large], entries_per_task=10)] == [
        [3, 3],
        [10],
        [10],
        [5],
    ]


def test_unread_entries_is_never_more_than_what_is_left() -> None:
    (part,) = ranges(bounds((5, 3), (8, 4)), 100)
    assert [entries_after(part, Position(*at)) for at in ((5, 2), (8, 1), (8, 3), (9, 0))] == [4, 2, 0, 0]


def test_bounds_and_ranges_survive_json() -> None:
    whole = bounds((5, 3), (8, 4))
    assert TopicBounds.from_json(whole.to_json()) == whole
    (compacted,) = compacted_range(whole, pair=3, publish_time=False)
    entries = cut(whole, pair=0, publish_time=True, entries_per_range=2, engine=EngineName.ENTRY)
    every = [*ranges(whole, 2), compacted, *entries, replace(ranges(whole, 2)[1], limited=True)]
    assert [Range.from_json(json.loads(json.dumps(part.to_json()))) for part in every] == every


def test_whole_entries_are_compared_without_a_read_before_them() -> None:
    parts = cut(bounds((5, 3), (8, 4)), pair=0, publish_time=True, entries_per_range=2, engine=EngineName.ENTRY)
    assert {(part.lookback, part.limited) for part in parts} == {(None, False)}


class _Admin:
    """A namespace with a partitioned topic, a plain one, and a partition that a replicator left without its topic."""

    def __init__(self, _: ClusterConnection) -> None:
        pass

    async def __aenter__(self) -> _Admin:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def topics(self, _: NamespaceName) -> tuple[TopicName, ...]:
        names = ("a", "lone-partition-0", "parted-partition-0", "parted-partition-1")
        return tuple(TopicName.parse(f"persistent://acme/orders/{name}") for name in names)

    async def partitioned_topics(self, _: NamespaceName) -> tuple[TopicName, ...]:
        return (TopicName.parse("persistent://acme/orders/parted"),)

    async def partition_metadata(self, topic: TopicName) -> Any:
        assert topic.local == "parted"
        return SimpleNamespace(partitions=2)

    async def internal_stats(self, _: TopicName) -> dict[str, object]:
        return stats("3:4", (3, 5))


def test_a_partition_without_its_topic_is_read_by_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "AdminClient", _Admin)
    options = TopicOptions(
        admin_url="http://blue:8080",
        service_url="pulsar://blue:6650",
        namespace=NamespaceName("acme", "orders"),
        pattern="a|lone|parted",
    )
    connection = ClusterConnection(name="blue", admin_url="http://blue:8080")
    read = [one.topic for task in asyncio.run(partitions.plan(connection, options)) for one in task]
    assert [name.rpartition("/")[2] for name in read] == [
        "a",
        "lone-partition-0",
        "parted-partition-0",
        "parted-partition-1",
    ]
