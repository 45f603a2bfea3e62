"""Frames of Pulsar's binary protocol: the few commands that reading a topic needs, as bytes (pure).

A frame is its size, the size of its command, the command (a protobuf), and for a message the stored entry after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from pulsar_fleet.cluster.names import Position

PROTOCOL_VERSION = 21
CLIENT = "pulsar-fleet"
_SIZES = struct.Struct(">II")
_WORD = (1 << 64) - 1


class Kind(IntEnum):
    """Commands; the number is both their type and the field that holds them."""

    CONNECT = 2
    CONNECTED = 3
    SUBSCRIBE = 4
    MESSAGE = 9
    FLOW = 11
    SUCCESS = 13
    ERROR = 14
    CLOSE_CONSUMER = 16
    PING = 18
    PONG = 19
    LOOKUP = 23
    LOOKUP_RESPONSE = 24
    CONSUMER_STATS = 25
    CONSUMER_STATS_RESPONSE = 26
    GET_LAST_MESSAGE_ID = 29
    GET_LAST_MESSAGE_ID_RESPONSE = 30
    AUTH_CHALLENGE = 36
    AUTH_RESPONSE = 37
    TOPIC_MIGRATED = 68


class ServerError(IntEnum):
    """The broker's error codes that have an error class of their own."""

    AUTHENTICATION = 3
    AUTHORIZATION = 4
    TOPIC_NOT_FOUND = 11
    TOPIC_TERMINATED = 15


Value = int | bytes


@dataclass(frozen=True, slots=True)
class Command:
    """A received command; of a repeated field the last value.

    :param kind: one of `Kind`, or an unknown number.
    """

    kind: int
    fields: Mapping[int, Value]

    def number(self, field: int, default: int = 0) -> int:
        """The number in a field."""
        value = self.fields.get(field, default)
        return value if isinstance(value, int) else default

    def text(self, field: int) -> str:
        """The text in a field; empty if the field is absent."""
        value = self.fields.get(field, b"")
        return value.decode(errors="replace") if isinstance(value, bytes) else ""

    def position(self, field: int) -> Position:
        """The message id in a field."""
        value = self.fields.get(field, b"")
        inner = dict(read_fields(value, 0, len(value))) if isinstance(value, bytes) else {}
        ledger, entry = inner.get(1, _WORD), inner.get(2, _WORD)
        return Position(_signed(ledger), _signed(entry))


def _signed(value: Value) -> int:
    assert isinstance(value, int)
    return value - (1 << 64) if value >> 63 else value


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as 64 bits."""
    value &= _WORD
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field with a number or a flag."""
    return varint(field << 3) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    """A field with text, bytes, or another message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def frame(kind: Kind, *fields: bytes) -> bytes:
    """A whole frame with one command."""
    command = number(1, kind) + text(kind, b"".join(fields))
    return _SIZES.pack(len(command) + 4, len(command)) + command


def read_varint(data: bytes | bytearray, index: int) -> tuple[int, int]:
    """The number at `index`, and the index after it."""
    value = shift = 0
    while True:
        byte = data[index]
        index += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index
        shift += 7


def read_fields(data: bytes, index: int, end: int) -> Iterator[tuple[int, Value]]:
    """Every field of a protobuf message between `index` and `end`, in order.

    :raises ValueError: a field that is neither a number nor bytes, or one that is longer than the message.
    """
    while index < end:
        tag, index = read_varint(data, index)
        if tag & 7 == 0:
            value, index = read_varint(data, index)
            yield tag >> 3, value
        elif tag & 7 in _FIXED_OR_BYTES:
            size, index = read_varint(data, index) if tag & 7 == 2 else (_FIXED_OR_BYTES[tag & 7], index)
            if index + size > end:
                raise ValueError(f"field {tag >> 3} ends after its message")
            yield tag >> 3, bytes(data[index : index + size])
            index += size
        else:
            raise ValueError(f"field {tag >> 3} has the unknown wire type {tag & 7}")


_FIXED_OR_BYTES = {1: 8, 2: 0, 5: 4}


def read_command(data: bytes) -> Command:
    """Decode a command without its frame; a command may have no fields."""
    outer = dict(read_fields(data, 0, len(data)))
    kind = outer.get(1, 0)
    assert isinstance(kind, int)
    inner = outer.get(kind, b"")
    return Command(kind, dict(read_fields(inner, 0, len(inner))) if isinstance(inner, bytes) else {})


def read_message(data: bytearray, index: int) -> tuple[int, int, int]:
    """Consumer, ledger and entry of the message command at `index`.

    Brokers write fields in the order of their numbers, and every field before the ledger takes two bytes.
    `read_command` does the same for any order, ten times slower.
    """
    consumer, index = read_varint(data, index + 5)
    ledger, index = read_varint(data, index + 3)
    entry, _ = read_varint(data, index + 1)
    return consumer, ledger, entry


def connect(*, method: str | None, credentials: bytes | None, broker_url: str | None) -> bytes:
    """The handshake: credentials, and the broker to which a proxy forwards."""
    auth = (text(5, method) if method else b"") + (text(3, credentials) if credentials else b"")
    proxied = text(6, broker_url) if broker_url else b""
    auth_refresh = text(10, number(1, 1))
    return frame(Kind.CONNECT, text(1, CLIENT), auth, number(4, PROTOCOL_VERSION), proxied, auth_refresh)


def auth_response(*, method: str, credentials: bytes) -> bytes:
    """The answer to an authentication challenge, which a broker sends when credentials expire."""
    auth = text(1, method) + text(2, credentials)
    return frame(Kind.AUTH_RESPONSE, text(1, CLIENT), text(2, auth), number(3, PROTOCOL_VERSION))


def lookup(request: int, topic: str, *, authoritative: bool) -> bytes:
    """Ask which broker serves a topic."""
    return frame(Kind.LOOKUP, text(1, topic), number(2, request), number(3, authoritative))


def subscribe(request: int, consumer: int, topic: str, subscription: str, first: Position) -> bytes:
    """A non-durable, exclusive subscription that begins with the entry `first` and never creates the topic."""
    # With a batch index the broker includes the start entry; without it, the broker begins after that entry.
    start = number(1, first.ledger) + number(2, first.entry) + number(4, 0)
    ids = text(1, topic) + text(2, subscription) + number(3, 0) + number(4, consumer) + number(5, request)
    return frame(Kind.SUBSCRIBE, ids, number(8, 0), text(9, start), number(15, 0))


def flow(consumer: int, messages: int) -> bytes:
    """Allow the broker to send this many more messages."""
    return frame(Kind.FLOW, number(1, consumer), number(2, messages))


def close_consumer(request: int, consumer: int) -> bytes:
    """End a subscription."""
    return frame(Kind.CLOSE_CONSUMER, number(1, consumer), number(2, request))


def consumer_stats(request: int, consumer: int) -> bytes:
    """Ask for the statistics of a subscription."""
    return frame(Kind.CONSUMER_STATS, number(1, request), number(4, consumer))


def get_last_message_id(request: int, consumer: int) -> bytes:
    """Ask for the last message that the broker would deliver."""
    return frame(Kind.GET_LAST_MESSAGE_ID, number(1, consumer), number(2, request))


PONG = frame(Kind.PONG)
