"""Schema versions of the workload's topics and the payloads that fit them (pure)."""

from __future__ import annotations

import json
from enum import StrEnum

from pulsar_fleet.cluster.json import JsonObject
from pulsar_sandbox.workload.live import NumberedMessage

# Each one is optional with a default, so that every strategy but ALWAYS_INCOMPATIBLE accepts the next version.
_ADDED_FIELDS = ("region", "note", "channel")


class SchemaKind(StrEnum):
    """How payloads are encoded; the values are the broker's schema types."""

    AVRO = "AVRO"
    JSON = "JSON"


def definition(version: int) -> str:
    """The record of a version (0-based) as Avro JSON: four fixed fields, and one optional field more per version."""
    fixed = [
        {"name": name, "type": kind}
        for name, kind in (("producer", "string"), ("key", "string"), ("number", "long"), ("at", "long"))
    ]
    added = [{"name": name, "type": ["null", "string"], "default": None} for name in _ADDED_FIELDS[:version]]
    record = {"type": "record", "name": "Numbered", "namespace": "workload", "fields": fixed + added}
    return json.dumps(record, indent=1)


def schema_body(kind: SchemaKind, version: int) -> JsonObject:
    """What to POST for a version."""
    return {"type": kind.value, "schema": definition(version), "properties": {"version": str(version + 1)}}


def encode(message: NumberedMessage, kind: SchemaKind | None, versions: int) -> bytes:
    """The payload of a message for the latest of `versions` schema versions; optional fields stay null."""
    if kind is not SchemaKind.AVRO:
        return message.to_bytes()
    nulls = bytes(versions - 1)
    return _text(message.producer) + _text(message.key) + _long(message.number) + _long(message.at) + nulls


def decode(payload: bytes) -> NumberedMessage:
    """Read a payload of either kind; anything else raises ValueError."""
    # An Avro payload begins with an even byte, the zig-zag length of the producer's name; a brace is odd.
    if payload[:1] == b"{":
        return NumberedMessage.from_bytes(payload)
    try:
        producer, offset = _read_text(payload, 0)
        key, offset = _read_text(payload, offset)
        number, offset = _read_long(payload, offset)
        at, _ = _read_long(payload, offset)
    except IndexError as error:
        raise ValueError(f"not a numbered message: {payload[:80]!r}") from error
    return NumberedMessage(producer, key, number, at)


def _long(value: int) -> bytes:
    """Avro's zig-zag variable-length integer; values here are never negative."""
    rest, encoded = value << 1, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _text(value: str) -> bytes:
    data = value.encode()
    return _long(len(data)) + data


def _read_long(payload: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while payload[offset] & 0x80:
        value |= (payload[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
    return (value | payload[offset] << shift) >> 1, offset + 1


def _read_text(payload: bytes, offset: int) -> tuple[str, int]:
    length, offset = _read_long(payload, offset)
    return payload[offset : offset + length].decode(), offset + length
