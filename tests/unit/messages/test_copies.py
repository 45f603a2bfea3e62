"""Copies without a source position, as Pulsar 3.0 makes them: found by producer, sequence id and publish time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.copies import REPLICATED_FROM, Copies
from pulsar_fleet.messages.positions import Ledgers

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
Headers = dict[str, str]


def entry(producer: str, sequence: int, at_ms: int) -> Headers:
    published = datetime.fromtimestamp(1_700_000_000 + at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "x-pulsar-producer-name": producer,
        "x-pulsar-sequence-id": str(sequence),
        "x-pulsar-publish-time": published,
    }


class Stored:
    """The entries of the topic on one cluster, in one ledger, and the calls about them."""

    connection: Any = type("Connection", (), {"name": "cluster"})

    def __init__(self, entries: list[Headers]) -> None:
        self.entries = entries
        self.calls = 0

    async def cluster_name(self) -> str:
        return "blue"

    async def entry_properties(self, topic: TopicName, position: Position) -> Headers:
        self.calls += 1
        return self.entries[position.entry]

    async def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        last = len(self.entries) - 1
        return {"lastConfirmedEntry": f"1:{last}", "ledgers": [{"ledgerId": 1, "entries": 0}]}


def copies(blue: list[Headers], green: list[Headers], frozen: int | None = None) -> Copies:
    """`frozen`: how many of blue's entries were there when the bounds were frozen."""
    ledgers = [Ledgers(((1, len(blue) if frozen is None else frozen),)), Ledgers(((1, len(green)),))]
    return Copies(Stored(blue), Stored(green), TOPIC, *ledgers)  # type: ignore[arg-type]


def copy_of(headers: Headers) -> Headers:
    return headers | {REPLICATED_FROM: "blue"}


@settings(max_examples=60)
@given(
    times=some.lists(some.integers(0, 60), min_size=1, max_size=60),
    left_out=some.sets(some.integers(0, 59), max_size=5),
)
async def test_the_entry_of_a_copy_is_found_although_times_do_not_ascend(times: list[int], left_out: set[int]) -> None:
    """Producers batch, and their clocks differ: the times of neighbours are mixed up, here by up to 60 ms."""
    blue = [entry(f"p{number % 3}", number, 10 * number + late) for number, late in enumerate(times)]
    kept = [number for number in range(len(blue)) if number not in left_out]
    both = copies(blue, [copy_of(blue[number]) for number in kept])
    for index, number in enumerate(kept):
        assert await both.origin(index) == Position(1, number)


async def test_an_entry_that_was_published_directly_has_no_origin() -> None:
    blue = [entry("a", 0, 0)]
    assert await copies(blue, [copy_of(blue[0]), entry("b", 0, 5)]).origin(1) is None


async def test_a_copy_from_a_third_cluster_has_no_origin() -> None:
    blue = [entry("a", 0, 0)]
    assert await copies(blue, [entry("w", 0, 5) | {REPLICATED_FROM: "west"}]).origin(0) is None


async def test_a_copy_of_an_entry_after_the_frozen_bounds_lies_after_them() -> None:
    blue = [entry("a", number, number) for number in range(20)]
    both = copies(blue, [copy_of(headers) for headers in blue], frozen=10)
    assert await both.origin(15) == Position(1, 15)
    assert await both.count_up_to(Position(1, 9)) == 10


async def test_a_copy_of_a_removed_entry_lies_before_the_source() -> None:
    blue = [entry("a", number, number) for number in range(400)]
    both = copies(blue[100:], [copy_of(headers) for headers in blue])
    origin = await both.origin(0)
    assert origin is not None
    assert origin < Position(1, 0)
    assert await both.count_up_to(Position(0, 0)) == 100


async def test_a_copy_whose_entry_is_not_where_its_time_lies_is_named() -> None:
    blue = [entry("a", number, 1000 * number) for number in range(600)]
    green = [copy_of(entry("a", 9_999, 500_000))]
    with pytest.raises(NotFound, match="does not have its entry near the publish time"):
        await copies(blue, green).origin(0)


async def test_where_nothing_was_left_out_one_call_to_each_cluster_finds_it() -> None:
    blue = [entry("a", number, number) for number in range(1000)]
    both = copies(blue, [copy_of(headers) for headers in blue])
    await both.origin(700)
    assert (both._source.calls, both._target.calls) == (1, 1)  # type: ignore[attr-defined]
