"""Messages written and read as bytes, with every field set or not as a test wants; nothing of it is the product's.

Clients write no key "" and no explicit default; this producer writes any metadata. What is stored is read back from the
broker and decoded here, field by field as PulsarApi.proto numbers them.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Self
from urllib.parse import urlsplit

import google_crc32c
from tests.support.protobuf_fields import frame, number, text

CONNECT, CONNECTED, SUBSCRIBE, PRODUCER, SEND, SEND_RECEIPT, MESSAGE, FLOW = 2, 3, 4, 5, 6, 7, 9, 11
SUCCESS, PRODUCER_SUCCESS, PING, PONG, LOOKUP, LOOKUP_RESPONSE = 13, 17, 18, 19, 23, 24
NONE, LZ4, ZLIB = 0, 1, 2

Meaning = tuple[object, ...]
"""What an application gets from one message, as far as a copy should keep it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; None is a field that is not set."""

    payload: bytes = b""
    properties: tuple[tuple[str, str], ...] = ()
    key: str | None = None
    key_is_base64: bool | None = None
    null_key: bool | None = None
    ordering_key: bytes | None = None
    event_time: int | None = None
    deliver_at: int | None = None
    null_value: bool | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """Messages as one entry: a batch, or one message alone.

    :param replicated: with what a replicator adds to an entry.
    """

    messages: tuple[Message, ...]
    batch: bool
    compression: int = NONE
    replicated: bool = False

    def encoded(self, sequence: int) -> bytes:
        """Metadata and payload with their sizes and their checksum, as a producer sends them."""
        added = [_pair(4, "__MSG_PROP_REPL_SOURCE_POSITION", "3:4"), text(5, "blue")] if self.replicated else []
        named = [text(1, "raw"), number(2, sequence), number(3, 1_795_252_442_118)]
        if self.batch:
            plain = b"".join(_in_batch(message) for message in self.messages)
            fields = [number(11, len(self.messages))]
        else:
            (message,) = self.messages
            plain, fields = message.payload, _fields(message, (4, 6, 17, 30, 18, 12, 25))
            fields += [] if message.deliver_at is None else [number(19, message.deliver_at)]
        packed = [number(8, self.compression), number(9, len(plain))] if self.compression else []
        metadata = b"".join([*named, *fields, *added, *packed])
        body = len(metadata).to_bytes(4, "big") + metadata + _compressed(plain, self.compression)
        return b"\x0e\x01" + google_crc32c.value(body).to_bytes(4, "big") + body


class RawConnection:
    """One connection to the broker of a standalone cluster."""

    def __init__(self, service_url: str) -> None:
        place = urlsplit(service_url)
        self._socket = socket.create_connection((place.hostname, place.port), 30)
        self._ids = count(1)
        self._buffer = b""
        self._send(frame(CONNECT, text(1, "raw"), number(4, 21)))
        self._next(CONNECTED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def write(self, topic: str, entries: Sequence[Entry]) -> None:
        """Write the entries to a topic, and wait until all are stored."""
        self._look_up(topic)
        producer = next(self._ids)
        self._send(frame(PRODUCER, text(1, topic), number(2, producer), number(3, next(self._ids))))
        self._next(PRODUCER_SUCCESS)
        for sequence, entry in enumerate(entries):
            fields = (number(1, producer), number(2, sequence), number(3, len(entry.messages)))
            self._send(frame(SEND, *fields, content=entry.encoded(sequence)))
            self._next(SEND_RECEIPT)

    def read(self, topic: str, entries: int) -> list[Meaning]:
        """The meaning of every message of the first entries of a topic."""
        self._look_up(topic)
        consumer = next(self._ids)
        earliest = text(9, number(1, -1) + number(2, -1))
        named = (
            text(1, topic),
            text(2, f"raw-{consumer}"),
            number(3, 0),
            number(4, consumer),
            number(5, next(self._ids)),
        )
        self._send(frame(SUBSCRIBE, *named, number(8, 0), earliest))
        self._next(SUCCESS)
        self._send(frame(FLOW, number(1, consumer), number(2, 1000)))
        return [meaning for _ in range(entries) for meaning in meanings(self._next(MESSAGE))]

    def _look_up(self, topic: str) -> None:
        self._send(frame(LOOKUP, text(1, topic), number(2, next(self._ids)), number(3, 0)))
        self._next(LOOKUP_RESPONSE)

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _next(self, kind: int) -> bytes:
        """What follows the command of the next frame of a kind."""
        while True:
            size = int.from_bytes(self._take(4), "big")
            received = self._take(size)
            end = 4 + int.from_bytes(received[:4], "big")
            command = dict(decoded(received[4:end]))
            if command[1] == PING:
                self._send(frame(PONG))
            elif command[1] == kind:
                return received[end:]
            elif command[1] not in (SEND_RECEIPT, MESSAGE):
                raise AssertionError(f"the broker sent {command} instead of {kind}")

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            received = self._socket.recv(1 << 20)
            assert received, "the broker closed the connection"
            self._buffer += received
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


def decoded(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers, and bytes of texts and messages."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + value]
            at += value
        else:
            assert tag & 7 == 0, tag
            yield tag >> 3, value


def meanings(stored: bytes) -> Iterator[Meaning]:
    """The messages of a stored entry."""
    if stored[:2] == b"\x0e\x02":
        stored = stored[6 + int.from_bytes(stored[2:6], "big") :]
    assert stored[:2] == b"\x0e\x01"
    body = stored[6:]
    end = 4 + int.from_bytes(body[:4], "big")
    metadata = list(decoded(body[4:end]))
    named = dict(metadata)
    plain = _plain(body[end:], named)
    if 11 not in named:
        yield _meaning(metadata, (4, 6, 17, 30, 18, 12, 25), named.get(19), plain)
        return
    for _ in range(_number(named[11])):
        begin = 4 + int.from_bytes(plain[:4], "big")
        single = list(decoded(plain[4:begin]))
        end = begin + _number(dict(single)[3])
        yield _meaning(single, (1, 2, 6, 10, 7, 5, 9), named.get(19), plain[begin:end])
        plain = plain[end:]


def _meaning(
    fields: Sequence[tuple[int, int | bytes]], numbers: Sequence[int], deliver_at: object, payload: bytes
) -> Meaning:
    properties, key, base64, null_key, ordering_key, event_time, null_value = numbers
    named = dict(fields)
    pairs = [dict(decoded(value)) for field, value in fields if field == properties and isinstance(value, bytes)]
    own = {pair[1]: pair[2] for pair in pairs}
    own.pop(b"__MSG_PROP_REPL_SOURCE_POSITION", None)
    return (
        payload,
        frozenset(own.items()),
        named.get(key),
        key in named and bool(named.get(base64)),
        bool(named.get(null_key)),
        named.get(ordering_key),
        named.get(event_time),
        bool(named.get(null_value)),
        deliver_at,
    )


def _in_batch(message: Message) -> bytes:
    fields = b"".join(_fields(message, (1, 2, 6, 10, 7, 5, 9))) + number(3, len(message.payload))
    return len(fields).to_bytes(4, "big") + fields + message.payload


def _fields(message: Message, numbers: Sequence[int]) -> list[bytes]:
    properties, key, base64, null_key, ordering_key, event_time, null_value = numbers
    fields = [_pair(properties, name, value) for name, value in message.properties]
    texts = ((key, message.key), (ordering_key, message.ordering_key))
    fields += [text(field, value) for field, value in texts if value is not None]
    flags = ((base64, message.key_is_base64), (null_key, message.null_key), (null_value, message.null_value))
    fields += [number(field, int(value)) for field, value in flags if value is not None]
    return fields + ([] if message.event_time is None else [number(event_time, message.event_time)])


def _pair(field: int, name: str, value: str) -> bytes:
    return text(field, text(1, name) + text(2, value))


def _compressed(plain: bytes, compression: int) -> bytes:
    if compression == ZLIB:
        return zlib.compress(plain)
    if compression != LZ4:
        return plain
    # One sequence of literals: what the format allows for bytes that do not repeat.
    rest = len(plain) - 15
    head = bytes([len(plain) << 4]) if rest < 0 else b"\xf0" + b"\xff" * (rest // 255) + bytes([rest % 255])
    return head + plain


def _plain(payload: bytes, metadata: dict[int, int | bytes]) -> bytes:
    compression = metadata.get(8, NONE)
    if compression == ZLIB:
        return zlib.decompress(payload)
    size = metadata.get(9, 0)
    return payload[len(payload) - _number(size) :] if compression == LZ4 else payload


def _number(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
