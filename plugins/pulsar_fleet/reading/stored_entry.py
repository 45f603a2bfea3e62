"""A stored entry as a broker sends it: checked, and digested as a whole without unpacking its batch (pure).

What is compared is what geo-replication keeps: the payload as it is stored, batched, compressed or encrypted, and the
metadata in front of it without what a copy has of its own: where it is from and goes to, ids of schemas and
transactions, and the properties `__MSG_PROP_…` of the replicator.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c
import numpy as np
import xxhash

from pulsar_fleet.reading.wire_frames import read_varint

ENTRY_ENCODING_VERSION = 1
"""To be raised when digests of the same entry change: proofs of an earlier one are not continued."""

_BROKER_METADATA = b"\x0e\x02"
_CHECKSUM = b"\x0e\x01"
_WORD = struct.Struct(">I").unpack_from
_PACK = struct.Struct(">I").pack

_PUBLISH_TIME, _PROPERTY, _MESSAGES, _MARKER = 3 << 3, 4 << 3 | 2, 11 << 3, 20 << 3
_READ = frozenset({_PUBLISH_TIME, _MESSAGES, _MARKER})
_LEFT_OUT = frozenset(
    {
        _PROPERTY,  # those of the replicator
        5 << 3 | 2,  # replicated_from
        7 << 3 | 2,  # replicate_to
        16 << 3 | 2,  # schema_version: each cluster counts its own
        22 << 3,  # txnid: the copy of a committed message is no part of a transaction
        23 << 3,
        32 << 3 | 2,  # schema_id
    }
)
"""Tags: number of the field and type."""

_REPLICATORS = b"__MSG_PROP_"


class StoredEntry(NamedTuple):
    """One entry; a batch is one entry.

    :param publish_time: of the batch, milliseconds since 1970.
    :param messages: how many there are in it; 1 also for a part of a message that was sent in chunks.
    :param size: bytes of its metadata and payload as they are stored.
    :param digest: 16 bytes, xxh3-128 of what a replicated copy has in common with its original; empty for a marker,
        which is of this cluster alone.
    """

    ledger: int
    entry: int
    publish_time: int
    messages: int
    size: int
    digest: bytes


class Corrupt(ValueError):
    """The bytes are not what was stored; the message says what is wrong with them."""


def read_entry(ledger: int, entry: int, content: memoryview) -> StoredEntry:
    """Check and digest the bytes that follow a message's command; `content` is not kept.

    :raises Corrupt: the checksum is wrong, or the metadata cannot be read.
    """
    try:
        body = _checked(content)
        end = 4 + _WORD(body, 0)[0]
        publish_time, messages, canonical = _metadata(bytes(body[:end]), end)
    except (IndexError, struct.error) as error:
        raise Corrupt("its metadata cannot be read") from error
    if canonical is None:
        return StoredEntry(ledger, entry, publish_time, messages, len(body), b"")
    digester = xxhash.xxh3_128(canonical)
    digester.update(body[end:])
    return StoredEntry(ledger, entry, publish_time, messages, len(body), digester.digest())


def _checked(content: memoryview) -> memoryview:
    """The entry from the size of its metadata on, without what the broker put in front of it."""
    magic = content[:2]
    if magic == _BROKER_METADATA:
        content = content[6 + _WORD(content, 2)[0] :]
        magic = content[:2]
    if magic != _CHECKSUM:
        return content
    body = content[6:]
    # The checksum takes no view of a buffer that can change, but an array of one: a copy would cost as much as it.
    if google_crc32c.value(np.frombuffer(body, np.uint8)) != _WORD(content, 2)[0]:
        raise Corrupt("its checksum is wrong")
    return body


def _metadata(body: bytes, end: int) -> tuple[int, int, bytes | None]:
    """Publish time, number of messages, and the canonical bytes, None for a marker.

    Canonical are the size, then the fields that are compared, as they are stored. One loop without calls, because it is
    most of what a small entry costs.
    """
    values: dict[int, int] = {}
    kept = b""
    index = begin = 4
    while index < end:
        start = index
        tag = body[index]
        index += 1
        if tag >= 0x80:
            tag, index = read_varint(body, start)
        inside = index
        if tag & 7 == 2:
            size = body[index]
            index += 1
            if size >= 0x80:
                size, index = read_varint(body, inside)
            inside = index
            index += size
        elif tag & 7 == 0:
            while body[index] >= 0x80:
                index += 1
            index += 1
        else:
            raise Corrupt(f"its metadata has a field of the unknown wire type {tag & 7}")
        if tag in _READ:
            values[tag] = inside
        elif tag in _LEFT_OUT and _is_of_the_copy(body, tag, inside, index):
            kept += body[begin:start]
            begin = index
    if index != end or end > len(body):
        raise Corrupt("its metadata is cut off")
    kept += body[begin:end]
    publish_time = read_varint(body, values[_PUBLISH_TIME])[0] if _PUBLISH_TIME in values else 0
    messages = read_varint(body, values[_MESSAGES])[0] if _MESSAGES in values else 1
    return publish_time, messages, None if _MARKER in values else _PACK(len(kept)) + kept


def _is_of_the_copy(body: bytes, tag: int, inside: int, after: int) -> bool:
    """Of the properties only the replicator's: the key comes first, and its tag and its size are a byte each."""
    return tag != _PROPERTY or body.startswith(_REPLICATORS, inside + 2, after)
