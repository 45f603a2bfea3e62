"""Fields of protobuf messages, written byte by byte: for messages that the product does not write."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as 64 bits."""
    value &= (1 << 64) - 1
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


def frame(kind: int, *fields: bytes, content: bytes = b"") -> bytes:
    """A frame of Pulsar's protocol with one command, and for a message the entry after it."""
    command = number(1, kind) + text(kind, b"".join(fields))
    size = 4 + len(command) + len(content)
    return size.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + content
