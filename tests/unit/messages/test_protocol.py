"""The binary protocol: frames that survive the way there and back, entries that are checked and compared as stored."""

from __future__ import annotations

import struct
from contextlib import suppress

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol.endpoint import BrokerAddress, service_addresses
from pulsar_fleet.messages.protocol.frames import Kind
from pulsar_fleet.messages.protocol.stored_entry import Corrupt, StoredEntry, read_entry

NUMBERS = st.integers(0, (1 << 64) - 1)
FIELDS = st.dictionaries(st.integers(1, 200), NUMBERS | st.binary(max_size=300), max_size=6)
PAYLOAD = b"a batch as it is stored"


def encoded(fields: dict[int, int | bytes]) -> list[bytes]:
    return [
        wire.number(field, value) if isinstance(value, int) else wire.text(field, value)
        for field, value in fields.items()
    ]


def command_of(frame: bytes) -> wire.Command:
    total, size = struct.unpack_from(">II", frame)
    assert (total + 4, size + 8) == (len(frame), len(frame))
    return wire.read_command(frame[8:])


@settings(max_examples=50)
@given(st.sampled_from(Kind), FIELDS)
def test_a_command_is_read_as_it_was_written(kind: Kind, fields: dict[int, int | bytes]) -> None:
    assert command_of(wire.frame(kind, *encoded(fields))) == wire.Command(kind, fields)


@settings(max_examples=50)
@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_short_way_to_a_messages_position_agrees_with_the_long_one(consumer: int, ledger: int, entry: int) -> None:
    place = wire.text(2, wire.number(1, ledger) + wire.number(2, entry) + wire.number(3, -1))
    frame = wire.frame(Kind.MESSAGE, wire.number(1, consumer), place, wire.number(3, 0))
    assert wire.read_message(bytearray(frame), 8) == (consumer, ledger, entry)
    assert command_of(frame).fields[2] == place[-len(place) + 2 :]


def test_a_position_without_a_message_is_read_as_minus_one() -> None:
    nothing = wire.frame(Kind.GET_LAST_MESSAGE_ID_RESPONSE, wire.text(1, wire.number(1, -1) + wire.number(2, -1)))
    assert command_of(nothing).position(1) == Position(-1, -1)


@pytest.mark.parametrize("broken", [b"\x0a\x05abc", b"\x0b", b"\x12\xff\x01"])
def test_a_field_that_cannot_be_is_refused(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"field \d"):
        list(wire.read_fields(broken, 0, len(broken)))


def metadata(*extra: bytes, sequence: int = 7, messages: int | None = 100) -> bytes:
    batch = b"" if messages is None else wire.number(11, messages)
    named = wire.text(1, "checkout-2") + wire.number(2, sequence) + wire.number(3, 1_795_252_442_118)
    return named + b"".join(extra) + wire.number(9, 512) + batch


def content(fields: bytes, payload: bytes = PAYLOAD, in_front: bytes = b"") -> bytearray:
    body = struct.pack(">I", len(fields)) + fields + payload
    return bytearray(in_front + b"\x0e\x01" + struct.pack(">I", google_crc32c.value(body)) + body)


def read(stored: bytes | bytearray) -> StoredEntry:
    return read_entry(4, 2, np.frombuffer(stored, np.uint8))


def own(key: str, value: str) -> bytes:
    return wire.text(4, wire.text(1, key) + wire.text(2, value))


def test_an_entry_tells_its_place_its_time_and_how_many_messages_it_holds() -> None:
    assert read(content(metadata()))[:4] == (4, 2, 1_795_252_442_118, 100)
    assert read(content(metadata(messages=None))).messages == 1


COPY = (
    own("__MSG_PROP_REPL_SOURCE_POSITION", "12:34"),
    wire.text(5, "blue"),
    wire.text(16, b"\0\1"),
    wire.number(22, 5),
)


@pytest.mark.parametrize("added", [*COPY, b"".join(COPY)])
def test_what_the_replicator_adds_does_not_count(added: bytes) -> None:
    assert read(content(metadata(added))).digest == read(content(metadata())).digest


def test_what_the_broker_puts_in_front_does_not_count() -> None:
    front = b"\x0e\x02" + struct.pack(">I", 3) + b"\x08\x01\x10"
    assert read(content(metadata(), in_front=front)) == read(content(metadata()))


@pytest.mark.parametrize(
    "altered",
    [
        content(metadata(sequence=8)),
        content(metadata(messages=99)),
        content(metadata(own("trace", "a"))),
        content(metadata(wire.text(6, "key"))),
        content(metadata(wire.number(8, 1))),
        content(metadata(), PAYLOAD + b"\0"),
        content(metadata()[:-2], metadata()[-2:] + PAYLOAD),
    ],
    ids=["sequence id", "messages", "property", "key", "compression", "payload", "a field moved into the payload"],
)
def test_all_else_counts(altered: bytearray) -> None:
    assert read(altered).digest != read(content(metadata())).digest


def test_a_marker_has_no_digest() -> None:
    assert read(content(metadata(wire.number(20, 10)))).digest == b""


@settings(max_examples=50)
@given(st.integers(0, 1000), st.integers(1, 255))
def test_a_byte_that_was_altered_anywhere_behind_the_checksum_is_detected(at: int, flip: int) -> None:
    stored = content(metadata())
    stored[6 + at % (len(stored) - 6)] ^= flip
    with pytest.raises(Corrupt, match="checksum is wrong"):
        read(stored)


@settings(max_examples=50)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_entry_are_corrupt_or_read_and_nothing_else(noise: bytes) -> None:
    with suppress(Corrupt):
        assert read(noise)[:2] == (4, 2)


def test_addresses_of_brokers_are_read_with_and_without_port() -> None:
    assert service_addresses("pulsar+ssl://one:7000,two/") == [
        BrokerAddress("one", 7000, True),
        BrokerAddress("two", 6651, True),
    ]
    assert str(BrokerAddress.parse("pulsar://[::1]")) == "pulsar://[::1]:6650"


@pytest.mark.parametrize("url", ["http://one:1", "pulsar://", "pulsar://one:port", "one:6650"])
def test_what_is_no_address_of_a_broker_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="it must be pulsar://host:port"):
        BrokerAddress.parse(url)
