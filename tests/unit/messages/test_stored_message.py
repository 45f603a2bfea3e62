"""Messages of stored entries: a field that is not set is not an empty one, in a batch and alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.support.protobuf_fields import number, text
from tests.support.raw_messages import LZ4, NONE, ZLIB, Entry, Message

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.datasource.ranges_source import ROW_COLUMNS
from pulsar_fleet.messages.digests import digest
from pulsar_fleet.messages.engines.engines import MOST_UNFINISHED, ChunkAssembly
from pulsar_fleet.messages.protocol.pulsar_api_pb2 import MessageMetadata
from pulsar_fleet.messages.protocol.stored_entry import Corrupt, EntryContent, StoredMessage, read_content, unpack
from pulsar_fleet.messages.ranges import Range
from pulsar_fleet.messages.scan import list_messages

FULL = Message(b"payload", (("a", "1"),), "k", True, True, b"\xff", 5, None, True)
EMPTY = Message(b"", (), "", False, False, b"", 0, None, False)
ABSENT = Message()


def unpacked(entry: Entry) -> list[StoredMessage]:
    content = read_content(4, 2, np.frombuffer(entry.encoded(7), np.uint8))
    return list(unpack(content, content.payload))


def contents(entries: Sequence[Entry]) -> list[bytes]:
    return [digest(message, publish_time=True) for entry in entries for message in unpacked(entry)]


@pytest.mark.parametrize("compression", [NONE, LZ4, ZLIB])
@pytest.mark.parametrize("replicated", [False, True])
def test_a_batch_holds_the_messages_that_single_entries_hold(compression: int, replicated: bool) -> None:
    messages = (FULL, EMPTY, ABSENT, replace(FULL, payload=b"x" * 300))
    batch = Entry(messages, batch=True, compression=compression, replicated=replicated)
    alone = [Entry((message,), batch=False) for message in messages]
    assert contents([batch]) == contents(alone)
    assert [message.batch for message in unpacked(batch)] == [0, 1, 2, 3]
    assert unpacked(alone[0])[0].batch == -1


@pytest.mark.parametrize("batch", [False, True])
def test_fields_are_read_as_they_are_set(batch: bool) -> None:
    (full,) = unpacked(Entry((FULL,), batch))
    assert full[6:15] == (b"k", True, True, b"\xff", 5, None, True, {b"a": b"1"}, b"payload")
    (empty,) = unpacked(Entry((EMPTY,), batch))
    assert empty[6:15] == (b"", False, False, b"", 0, None, False, {}, b"")
    (absent,) = unpacked(Entry((ABSENT,), batch))
    assert absent[6:15] == (None, False, False, None, None, None, False, {}, b"")


@pytest.mark.parametrize("stored", [1_790_000_000_123_456, (1 << 63) - 1, 1 << 63, (1 << 64) - 5])
def test_an_event_time_beyond_every_calendar_is_a_row_of_spark(stored: int) -> None:
    messages = unpacked(Entry((replace(FULL, event_time=stored),), batch=False))
    engine = SimpleNamespace(read=lambda entry_range: [messages])
    whole = Range(0, 0, "persistent://a/b/c", Position(4, 2), Position(4, 2), 1, True)
    (record,) = list_messages(engine, whole, frozenset({0}), 1)
    rows = pa.RecordBatch.from_pylist([{**asdict(record), "side": "source"}], schema=ROW_COLUMNS)
    assert rows.column("event_time").to_pylist() == [stored if stored < 1 << 63 else stored - (1 << 64)]


def test_a_time_of_delivery_that_is_not_set_is_not_0() -> None:
    times = [unpacked(Entry((replace(ABSENT, deliver_at=at),), batch=False))[0].deliver_at for at in (None, 0, 9)]
    assert times == [None, 0, 9]


def test_of_two_properties_with_one_name_the_last_counts_as_in_a_client() -> None:
    (message,) = unpacked(Entry((replace(ABSENT, properties=(("a", "1"), ("a", "2"))),), batch=True))
    assert message.properties == {b"a": b"2"}


def content(fields: bytes, payload: bytes, messages: int = 1) -> EntryContent:
    return EntryContent(4, 2, messages, 0, False, MessageMetadata.FromString(fields), payload)


@pytest.mark.parametrize(("compression", "codec"), [(1, "lz4_raw"), (3, "zstd"), (4, "snappy")])
def test_payloads_of_every_compression_are_read(compression: int, codec: str) -> None:
    packed = pa.Codec(codec).compress(b"order " * 50, asbytes=True)
    entry = content(number(8, compression) + number(9, 300), packed)
    assert [message.payload for message in unpack(entry, packed)] == [b"order " * 50]


@pytest.mark.parametrize("compression", [1, 2, 3, 4, 9])
def test_a_payload_that_cannot_be_decompressed_is_corrupt(compression: int) -> None:
    entry = content(number(8, compression) + number(9, 300), b"\xff\xff\xff")
    with pytest.raises(Corrupt, match="decompressed"):
        list(unpack(entry, entry.payload))


@pytest.mark.parametrize("cut", [2, 6, 12])
def test_a_batch_that_is_cut_off_is_corrupt(cut: int) -> None:
    whole = read_content(4, 2, np.frombuffer(Entry((FULL,), batch=True).encoded(7), np.uint8))
    with pytest.raises(Corrupt, match="batch"):
        list(unpack(whole, whole.payload[:cut]))


def test_an_encrypted_batch_is_one_message_and_its_keys_count() -> None:
    first, second = (number(11, 3) + number(8, 1) + text(13, key) for key in ("a", "b"))
    messages = [message for fields in (first, second) for message in unpack(content(fields, b"cipher", 3), b"cipher")]
    assert [(message.payload, message.batch) for message in messages] == [(b"cipher", -1)] * 2
    assert len({digest(message, publish_time=False) for message in messages}) == 2


def test_a_message_that_a_compaction_took_out_of_a_batch_is_left_out() -> None:
    gone, kept = (number(3, 1) + extra for extra in (number(4, 1), b""))
    payload = b"".join(len(fields).to_bytes(4, "big") + fields + b"x" for fields in (gone, kept))
    assert [message.batch for message in unpack(content(number(11, 2), payload, 2), payload)] == [1]


def chunk(at: int, of: int = 3, name: str = "one") -> EntryContent:
    return content(text(26, name) + number(27, of) + number(29, at), b"%d" % at)


def test_chunks_make_one_message() -> None:
    chunks = ChunkAssembly()
    assert [chunks.add(chunk(at)) for at in (0, 1, 2)] == [None, None, b"012"]


def test_chunks_of_two_messages_may_mix() -> None:
    chunks = ChunkAssembly()
    order = [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert [chunks.add(chunk(at, 2, name)) for name, at in order] == [None, None, b"01", b"01"]


def test_a_producer_that_begins_again_makes_one_message() -> None:
    chunks = ChunkAssembly()
    assert [chunks.add(chunk(at)) for at in (0, 1, 0, 1, 2)][-1] == b"012"


def test_a_chunk_without_those_before_it_is_remembered() -> None:
    chunks = ChunkAssembly()
    assert chunks.orphan is None
    assert chunks.add(chunk(1)) is None
    assert str(chunks.orphan) == "4:2"


def test_no_more_unfinished_messages_are_kept_than_in_a_client() -> None:
    chunks = ChunkAssembly()
    for number_ in range(MOST_UNFINISHED + 1):
        chunks.add(chunk(0, 2, str(number_)))
    assert chunks.add(chunk(1, 2, "0")) is None
    assert chunks.add(chunk(1, 2, "1")) == b"01"
