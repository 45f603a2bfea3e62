"""The binary protocol: frames that survive the way there and back, entries that are checked and compared as stored."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.protobuf_fields import frame, number, text

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, Unauthenticated, Unavailable
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.connection import (
    BrokerAddress,
    ConnectionLost,
    WireConnection,
    refused,
    service_addresses,
)
from pulsar_fleet.messages.protocol.stored_entry import Corrupt, StoredEntry, read_entry

NUMBERS = st.integers(0, (1 << 63) - 1)
PAYLOAD = b"a batch as it is stored"
TOPIC = "persistent://a/b/c"


def command_of(frame: bytes) -> api.BaseCommand:
    total, size = struct.unpack_from(">II", frame)
    assert (total + 4, size + 8) == (len(frame), len(frame))
    return api.BaseCommand.FromString(frame[8:])


@pytest.mark.parametrize(
    ("frame", "literal"),
    [
        (
            wire.connect(method=None, credentials=None, broker_url=None),
            "0000001c00000018080212140a0c70756c7361722d666c656574201552020801",
        ),
        (
            wire.auth_response(method="none", credentials=b""),
            "000000230000001f0825aa021a0a0c70756c7361722d666c65657412080a046e6f6e6512001815",
        ),
        (
            wire.lookup(300, TOPIC, authoritative=False),
            "000000220000001e0817ba01190a1270657273697374656e743a2f2f612f622f6310ac021800",
        ),
        (
            wire.subscribe(2, 3, TOPIC, "reader", Position(7, 0)),
            "00000038000000340804"
            "22300a1270657273697374656e743a2f2f612f622f631206726561646572"
            "18002003280240004a06080710002000"
            "58007800",
        ),
        (
            wire.subscribe(2, 3, TOPIC, "reader", Position(-1, -1), compacted=True),
            "00000048000000440804"
            "22400a1270657273697374656e743a2f2f612f622f631206726561646572"
            "18002003280240004a1608ffffffffffffffffff0110ffffffffffffffffff01"
            "58017800",
        ),
        (wire.create_producer(2, 3, TOPIC), "000000200000001c08052a180a1270657273697374656e743a2f2f612f622f6310031802"),
        (wire.flow(3, 1000), "0000000d00000009080b5a05080310e807"),
        (wire.close_consumer(4, 3), "0000000d00000009081082010408031004"),
        (wire.consumer_stats(5, 3), "0000000d000000090819ca010408052003"),
        (wire.get_last_message_id(6, 3), "0000000d00000009081dea010408031006"),
        (wire.PONG, "000000090000000508139a0100"),
    ],
    ids=[
        "connect",
        "auth response",
        "lookup",
        "subscribe",
        "subscribe compacted",
        "producer",
        "flow",
        "close",
        "statistics",
        "last message",
        "pong",
    ],
)
def test_a_command_is_written_byte_by_byte_as_brokers_know_it(frame: bytes, literal: str) -> None:
    assert frame.hex() == literal


def test_the_handshake_has_credentials_and_the_broker_behind_a_proxy() -> None:
    auth = text(5, "token") + text(3, b"secret")
    fields = text(1, "pulsar-fleet") + auth + number(4, 21) + text(6, "b-1:6650") + text(10, number(1, 1))
    written = wire.connect(method="token", credentials=b"secret", broker_url="b-1:6650")
    assert command_of(written) == command_of(frame(api.CONNECT, fields))


@settings(max_examples=50)
@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_short_way_to_a_messages_position_agrees_with_the_long_one(consumer: int, ledger: int, entry: int) -> None:
    place = text(2, number(1, ledger) + number(2, entry) + number(3, -1))
    written = frame(api.MESSAGE, number(1, consumer), place, number(3, 0))
    assert wire.read_message(bytearray(written), 8) == (consumer, ledger, entry)
    message = command_of(written).message
    assert (message.consumer_id, message.message_id.ledger_id, message.message_id.entry_id) == (consumer, ledger, entry)


@pytest.mark.parametrize("position", [b"", number(1, -1) + number(2, -1)], ids=["absent", "minus one"])
def test_a_position_without_a_message_is_read_as_minus_one(position: bytes) -> None:
    answer = command_of(frame(api.GET_LAST_MESSAGE_ID_RESPONSE, text(1, position))).get_last_message_id_response
    assert (answer.last_message_id.ledger_id, answer.last_message_id.entry_id) == (-1, -1)


def test_a_lookup_without_a_response_failed() -> None:
    answer = command_of(frame(api.LOOKUP_RESPONSE, number(4, 1))).lookup_response
    assert answer.response == api.CommandLookupTopicResponse.FAILED


@pytest.mark.parametrize("code", [3, 99])
def test_a_code_and_a_text_of_a_broker_are_read_whatever_they_are(code: int) -> None:
    error = command_of(frame(api.ERROR, number(1, 7), number(2, code), text(3, b"caf\xe9"))).error
    assert (error.request_id, error.error) == (7, code)
    refusal = refused(error.error, error.message, "a topic", cluster="blue", address="pulsar://blue:6650")
    assert type(refusal) is (Unauthenticated if code == 3 else Unavailable)
    assert "caf\ufffd" in str(refusal)


@pytest.mark.parametrize(
    ("code", "said", "policy"),
    [
        (
            22,
            b"Exceed the maximum number of subscriptions of the topic",
            "maxSubscriptionsPerTopic",
        ),
        (22, b"Topic[{persistent://a/b/c}] doesn't support Exclusive sub type!", "subscriptionTypesEnabled"),
        (5, b"Topic reached max consumers limit", "maxConsumersPerTopic"),
    ],
)
def test_a_policy_that_refuses_a_reader_is_named_and_not_tried_again(code: int, said: bytes, policy: str) -> None:
    refusal = refused(code, said, "persistent://a/b/c", cluster="blue", address="pulsar://blue:6650")
    assert type(refusal) is InvalidRequest
    assert f"its {policy}" in str(refusal)


@pytest.mark.parametrize("broken", [b"\x0a\x05abc", b"\x0b", b"\x12\xff\x01", b"\x08"])
def test_a_command_that_cannot_be_read_ends_the_connection_with_a_sentence(broken: bytes) -> None:
    sizes = struct.pack(">II", len(broken) + 6, len(broken) + 2)
    with answering(sizes + b"\x08\x0d" + broken) as url, pytest.raises(ConnectionLost, match="that cannot be read"):
        WireConnection(BrokerAddress.parse(url), ClusterConnection(name="blue", admin_url="http://blue:8080"))


@contextmanager
def answering(frame: bytes) -> Iterator[str]:
    """The address of a server that answers the first connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(65_536)
                client.sendall(frame)

        done = thread.submit(answer)
        yield "pulsar://{}:{}".format(*server.getsockname())
        done.result(10)


def metadata(*extra: bytes, sequence: int = 7, messages: int | None = 100) -> bytes:
    batch = b"" if messages is None else number(11, messages)
    named = text(1, "checkout-2") + number(2, sequence) + number(3, 1_795_252_442_118)
    return named + b"".join(extra) + number(9, 512) + batch


def content(fields: bytes, payload: bytes = PAYLOAD, in_front: bytes = b"") -> bytearray:
    body = struct.pack(">I", len(fields)) + fields + payload
    return bytearray(in_front + b"\x0e\x01" + struct.pack(">I", google_crc32c.value(body)) + body)


def read(stored: bytes | bytearray) -> StoredEntry:
    return read_entry(4, 2, np.frombuffer(stored, np.uint8))


def own(key: str, value: str) -> bytes:
    return text(4, text(1, key) + text(2, value))


def test_an_entry_tells_its_place_its_time_and_how_many_messages_it_holds() -> None:
    assert read(content(metadata()))[:4] == (4, 2, 1_795_252_442_118, 100)
    assert read(content(metadata(messages=None))).messages == 1


COPY = (
    own("__MSG_PROP_REPL_SOURCE_POSITION", "12:34"),
    text(5, "blue"),
    text(16, b"\0\1"),
    number(22, 5),
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
        content(metadata(text(6, "key"))),
        content(metadata(number(8, 1))),
        content(metadata(), PAYLOAD + b"\0"),
        content(metadata()[:-2], metadata()[-2:] + PAYLOAD),
    ],
    ids=["sequence id", "messages", "property", "key", "compression", "payload", "a field moved into the payload"],
)
def test_all_else_counts(altered: bytearray) -> None:
    assert read(altered).digest != read(content(metadata())).digest


def test_a_marker_has_no_digest() -> None:
    assert read(content(metadata(number(20, 10)))).digest == b""


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
