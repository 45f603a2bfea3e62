"""Digests: what makes two messages equal, and that sums find every kind of damage."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.messages.digests import (
    ALL,
    ENCODING_VERSION,
    DigestRow,
    RangeDigester,
    Sums,
    TopicDigest,
    bucket_of,
    differing_buckets,
    digest,
)
from pulsar_fleet.messages.protocol.stored_entry import StoredMessage

PLAIN = StoredMessage(
    ledger=5,
    entry=6,
    batch=-1,
    publish_time=7,
    producer=b"p",
    schema_version=None,
    key=b"k",
    key_is_base64=False,
    null_key=False,
    ordering_key=None,
    event_time=5,
    deliver_at=None,
    null_value=False,
    properties={b"a": b"1", b"b": b"2"},
    payload=b"payload",
)


def hashed(**changes: Any) -> bytes:
    return digest(PLAIN._replace(**changes), publish_time=True)


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


MESSAGES = [hashed(payload=b"%d" % number) for number in range(100)]


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"Payload"},
        {"key": b""},
        {"key": None},
        {"key_is_base64": True},
        {"null_key": True},
        {"ordering_key": b"o"},
        {"ordering_key": b""},
        {"event_time": 6},
        {"event_time": 0},
        {"event_time": None},
        {"deliver_at": 9},
        {"publish_time": 8},
        {"null_value": True},
        {"properties": {b"a": b"1", b"b": b"3"}},
        {"properties": {b"a": b"1"}},
        {"properties": {b"a": b"1", b"b": b"2", b"c": b""}},
        {"properties": {b"a": b"1', b'b': b'2"}},
        {"properties": {}},
        {"key": b"k'", "ordering_key": b"'"},
        {"encryption": b"keys"},
    ],
    ids=str,
)
def test_a_change_in_any_field_changes_the_digest(change: dict[str, object]) -> None:
    assert hashed(**change) != hashed()


@pytest.mark.parametrize("field", ["key", "ordering_key", "event_time", "deliver_at"])
def test_a_field_that_is_not_set_is_not_an_empty_one(field: str) -> None:
    empty: object = 0 if field in ("event_time", "deliver_at") else b""
    assert hashed(**{field: None}) != hashed(**{field: empty})


def test_fields_do_not_run_into_each_other() -> None:
    assert hashed(key=b"ab", ordering_key=b"c") != hashed(key=b"a", ordering_key=b"bc")


def test_properties_of_the_replicator_and_their_order_do_not_count() -> None:
    assert hashed(properties={b"b": b"2", b"__MSG_PROP_REPL_SOURCE_POSITION": b"3:4", b"a": b"1"}) == hashed()
    only = {b"__MSG_PROP_REPL_SOURCE_POSITION": b"3:4"}
    assert hashed(properties=only) == hashed(properties={})


def test_what_legitimately_differs_in_a_copy_does_not_count() -> None:
    assert hashed(ledger=9, entry=1, batch=3, producer=b"q", schema_version=b"\x01") == hashed()


def test_the_publish_time_counts_only_when_asked_for() -> None:
    other = PLAIN._replace(publish_time=8)
    assert digest(other, publish_time=False) == digest(PLAIN, publish_time=False)


def test_bytes_that_are_not_text_are_encoded() -> None:
    assert len({hashed(key=key) for key in ("é".encode(), b"\xe9", b"\\xe9")}) == 3


@settings(max_examples=50)
@given(st.lists(st.integers(0, 100), max_size=5))
def test_ranges_add_up_to_the_same_topic_wherever_it_is_cut(cuts: list[int]) -> None:
    assert summed(MESSAGES, *sorted(cuts)) == summed(MESSAGES)


def defined(digests: Sequence[bytes]) -> TopicDigest:
    """The digest by its definition, one message after the other."""
    parts, order = {ALL: Sums()}, 0
    for ordinal, content in enumerate(digests, 1):
        lanes = [int.from_bytes(content[at : at + 4], "little") for at in (0, 4, 8, 12)]
        order = (order + ordinal * int.from_bytes(content[:8], "little")) % 2**64
        for bucket in (content[0] + 256 * content[1]) % 16, ALL:
            old = parts.get(bucket, Sums())
            first, second, third, fourth = (a + b for a, b in zip(old.lanes, lanes, strict=True))
            parts[bucket] = Sums(old.count + 1, (first, second, third, fourth))
    return TopicDigest(all=parts.pop(ALL), buckets=parts, order=order)


@pytest.mark.parametrize("last", range(94, 101))
def test_a_digest_is_what_its_definition_says(last: int) -> None:
    assert summed(MESSAGES[:last], 30, 64) == defined(MESSAGES[:last])


@settings(max_examples=20)
@given(st.integers(0, 100))
def test_a_proof_is_continued_to_that_of_the_whole_topic(cut: int) -> None:
    whole = defined(MESSAGES)
    continued = summed(MESSAGES[cut:]).following(json.loads(json.dumps(summed(MESSAGES[:cut]).to_json())))
    assert (continued.all, continued.order) == (whole.all, whole.order)


def test_a_stored_proof_is_the_count_and_hexadecimal_sums() -> None:
    proof = TopicDigest(all=Sums(3, (1, 2**64 + 2, 255, 2**32)), order=2**64 - 1).to_json()
    sums = "0000000000000001000000000000000200000000000000ff0000000100000000"
    assert proof == {"messages": 3, "sums": sums, "order": "ffffffffffffffff"}


def test_the_encoding_has_not_changed_under_its_version() -> None:
    # Stored proofs are continued by the version alone: with another digest, raise the version.
    assert (ENCODING_VERSION, hashed().hex()) == (2, "94094b0f6fa039c386043620290f1e76")
    assert digest(PLAIN, publish_time=False) == hashed(publish_time=0)


def test_a_topic_without_messages_is_equal_to_another_one_without() -> None:
    assert summed([]) == TopicDigest()


@pytest.mark.parametrize("buckets", [16, 300], ids=["told by one byte", "told by two bytes"])
def test_messages_are_in_the_bucket_that_a_second_reading_asks_for(buckets: int) -> None:
    digester = RangeDigester(buckets)
    digester.add(MESSAGES)
    counted = {row.bucket: row.sums.count for row in digester.rows(0, 0) if row.bucket != ALL}
    assert counted == Counter(bucket_of(message, buckets) for message in MESSAGES)


def test_a_digest_with_a_key_is_as_long_as_any_other_and_tells_keys_apart() -> None:
    digests = {digest(PLAIN, publish_time=True, key=key) for key in (None, b"one", b"other")}
    assert [len(content) for content in digests] == [16, 16, 16]


DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "dropped": lambda messages: messages[:40] + messages[41:],
    "duplicated": lambda messages: [*messages[:40], messages[40], *messages[40:]],
    "dropped twice": lambda messages: messages[:40] + messages[42:],
    "altered": lambda messages: [*messages[:40], hashed(payload=b"other"), *messages[41:]],
    "one dropped and another duplicated": lambda messages: [*messages[:40], messages[50], *messages[41:]],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_shows_in_the_buckets(damage: str) -> None:
    assert differing_buckets(summed(MESSAGES), summed(DAMAGES[damage](MESSAGES), 30, 60))


def test_a_message_that_is_alone_in_its_bucket_is_seen_on_either_side() -> None:
    held, nothing = summed(MESSAGES[:1]), summed([])
    assert differing_buckets(held, nothing) == differing_buckets(nothing, held) == {bucket_of(MESSAGES[0], 16)}


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


def test_entries_count_their_messages_and_add_up_wherever_they_are_cut() -> None:
    sizes = [1 + number % 7 for number in range(100)]
    assert entries(sizes).all.count == sum(sizes)
    assert entries(sizes, 30, 64) == entries(sizes)
    assert entries([1] * 100) == summed(MESSAGES)


def test_a_range_that_could_not_be_read_leaves_its_reason() -> None:
    assert TopicDigest.fold([DigestRow(0, 0, ALL, problem="gone")]).problems == ("gone",)
