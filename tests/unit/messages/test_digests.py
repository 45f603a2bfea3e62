"""Digests: what makes two messages equal, and that sums find every kind of damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.messages.digests import (
    ALL,
    DigestRow,
    RangeDigester,
    TopicDigest,
    bucket_of,
    differing_buckets,
    digest,
)


@dataclass(frozen=True)
class Message:
    payload: bytes = b"payload"
    key: str = "k"
    ordering: str = ""
    event: int = 5
    publish: int = 7
    null: bool = False
    named: dict[str, str] = field(default_factory=lambda: {"a": "1", "b": "2"})

    def data(self) -> bytes:
        return self.payload

    def partition_key(self) -> str:
        return self.key

    def ordering_key(self) -> str:
        return self.ordering

    def event_timestamp(self) -> int:
        return self.event

    def publish_timestamp(self) -> int:
        return self.publish

    def has_null_value(self) -> bool:
        return self.null

    def properties(self) -> dict[str, str]:
        return self.named


def hashed(message: Message, publish_time: bool = True) -> bytes:
    return digest(message, publish_time=publish_time)


def summed(digests: Sequence[bytes], *cuts: int) -> TopicDigest:
    """The digest of a topic that was read in several ranges, whose rows arrive in the wrong order."""
    edges = [0, *cuts, len(digests)]
    rows: list[DigestRow] = []
    for index, (begin, end) in enumerate(pairwise(edges)):
        digester = RangeDigester(16)
        for at in range(begin, end, 3):
            digester.add(digests[at : min(at + 3, end)])
        rows += digester.rows(0, index)
    return TopicDigest.fold(reversed(rows))


MESSAGES = [hashed(Message(payload=b"%d" % number)) for number in range(100)]


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"Payload"},
        {"key": ""},
        {"ordering": "o"},
        {"event": 6},
        {"publish": 8},
        {"null": True},
        {"named": {"a": "1", "b": "3"}},
        {"named": {"a": "1"}},
        {"named": {"a": "1', 'b': '2"}},
        {"key": "k'", "ordering": "'"},
    ],
    ids=lambda change: "+".join(change),
)
def test_a_change_in_any_field_changes_the_digest(change: dict[str, object]) -> None:
    assert hashed(replace(Message(), **change)) != hashed(Message())  # type: ignore[arg-type]


def test_fields_do_not_run_into_each_other() -> None:
    assert hashed(Message(key="ab", ordering="c")) != hashed(Message(key="a", ordering="bc"))


def test_properties_of_the_replicator_and_their_order_do_not_count() -> None:
    replicated = Message(named={"b": "2", "__MSG_PROP_REPL_SOURCE_POSITION": "3:4", "a": "1"})
    assert hashed(replicated) == hashed(Message())


def test_the_publish_time_counts_only_when_asked_for() -> None:
    assert hashed(Message(publish=8), publish_time=False) == hashed(Message(), publish_time=False)


def test_text_outside_ascii_is_encoded() -> None:
    assert hashed(Message(key="é")) != hashed(Message(key="\\xe9"))


@settings(max_examples=50)
@given(st.lists(st.integers(0, 100), max_size=5))
def test_ranges_add_up_to_the_same_topic_wherever_it_is_cut(cuts: list[int]) -> None:
    assert summed(MESSAGES, *sorted(cuts)) == summed(MESSAGES)


def test_a_topic_without_messages_is_equal_to_another_one_without() -> None:
    assert summed([]) == TopicDigest()


def test_messages_are_in_the_bucket_that_a_second_reading_asks_for() -> None:
    found = summed(MESSAGES)
    assert {number: sums.count for number, sums in found.buckets.items()} == {
        number: sum(bucket_of(one, 16) == number for one in MESSAGES) for number in found.buckets
    }


DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "dropped": lambda each: each[:40] + each[41:],
    "duplicated": lambda each: [*each[:40], each[40], *each[40:]],
    "dropped twice": lambda each: each[:40] + each[42:],
    "altered": lambda each: [*each[:40], hashed(Message(payload=b"other")), *each[41:]],
    "one dropped and another duplicated": lambda each: [*each[:40], each[50], *each[41:]],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_shows_in_the_buckets(damage: str) -> None:
    assert differing_buckets(summed(MESSAGES), summed(DAMAGES[damage](MESSAGES), 30, 60))


def test_a_message_lost_from_two_equal_ones_is_seen() -> None:
    assert differing_buckets(summed([*MESSAGES, MESSAGES[0], MESSAGES[0]]), summed(MESSAGES))


def test_two_neighbours_in_the_wrong_order_show_in_the_order_digest_alone() -> None:
    swapped = [*MESSAGES[:40], MESSAGES[41], MESSAGES[40], *MESSAGES[42:]]
    assert not differing_buckets(summed(MESSAGES), summed(swapped, 41))
    assert summed(MESSAGES).order != summed(swapped, 41).order


def test_a_shuffled_copy_holds_the_same_messages() -> None:
    shuffled = random.Random(1).sample(MESSAGES, len(MESSAGES))
    assert summed(shuffled).all == summed(MESSAGES).all


def entries(sizes: Sequence[int], *cuts: int) -> TopicDigest:
    """The digest of entries that hold so many messages each, read in several ranges."""
    edges = [0, *cuts, len(sizes)]
    rows: list[DigestRow] = []
    for index, (begin, end) in enumerate(pairwise(edges)):
        digester = RangeDigester(16)
        digester.add(MESSAGES[begin:end], sizes[begin:end])
        rows += digester.rows(0, index)
    return TopicDigest.fold(rows)


def test_entries_count_as_many_as_they_hold_and_add_up_wherever_they_are_cut() -> None:
    sizes = [1 + number % 7 for number in range(100)]
    assert entries(sizes).all.count == sum(sizes)
    assert entries(sizes, 30, 64) == entries(sizes)
    assert entries([1] * 100) == summed(MESSAGES)


def test_a_range_that_could_not_be_read_leaves_its_reason() -> None:
    assert TopicDigest.fold([DigestRow(0, 0, ALL, problem="gone")]).problems == ("gone",)
