"""A stored entry as a broker sends it: checked, and digested as a whole without unpacking its batch (pure).

The digest covers what geo-replication preserves: the payload as it is stored (batched, compressed or encrypted) and
the metadata before it, without the fields that differ in a copy: the clusters it comes from and goes to, ids of schemas
and transactions, and the replicator's properties `__MSG_PROP_…`.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeAlias, TypeVar

import google_crc32c
import xxhash
from google.protobuf.message import DecodeError, Message

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol.pulsar_api_pb2 import EntryMetadata

ENTRY_ENCODING_VERSION = 2
"""Increase it when the digest of the same entry changes: proofs of an earlier version are not continued."""

_BROKER_METADATA = 0x0E02
_CHECKSUM = 0x0E01
_HEAD = struct.Struct(">HI").unpack_from
_WORD = struct.Struct(">I").unpack_from
_PACK = struct.Struct(">I").pack

_REPLICATORS = b"__MSG_PROP_"


Bytes: TypeAlias = Any
"""A numpy array of bytes, which for mypy is a buffer only since Python 3.12. It is the only view of mutable bytes that
the checksum accepts, and a copy would cost as much as the checksum.
"""


class StoredEntry(NamedTuple):
    """One entry; a batch is one entry.

    :param publish_time: of the batch, milliseconds since 1970.
    :param messages: number of its messages; 1 also for a chunk of a message.
    :param size: bytes of its metadata and payload as they are stored.
    :param digest: 16 bytes, xxh3-128 of the parts that a replicated copy shares with its original; empty for a marker.
    :param marker: it is a marker of the broker, which exists on this cluster only.
    :param origin: the cluster whose replicator wrote it; empty for what a producer of this cluster wrote.
    """

    ledger: int
    entry: int
    publish_time: int
    messages: int
    size: int
    digest: bytes
    marker: bool = False
    origin: str = ""

    @property
    def position(self) -> Position:
        """The position of the entry."""
        return Position(self.ledger, self.entry)


class Corrupt(ValueError):
    """The bytes are corrupt; the message says what is wrong."""


def read_entry(ledger: int, entry: int, content: Bytes) -> StoredEntry:
    """Check and digest the bytes that follow a message command; keeps no reference to `content`.

    :raises Corrupt: the checksum is wrong, or the metadata cannot be read.
    """
    metadata, payload, size = parts(content, EntryMetadata)
    messages = metadata.num_messages_in_batch or 1
    publish_time = metadata.publish_time
    if metadata.HasField("marker_type"):
        return StoredEntry(ledger, entry, publish_time, messages, size, b"", marker=True)
    origin = metadata.replicated_from.decode()
    canonical = _in_common(metadata)
    digester = xxhash.xxh3_128(_PACK(len(canonical)) + canonical)
    digester.update(payload)
    return StoredEntry(ledger, entry, publish_time, messages, size, digester.digest(), origin=origin)


Metadata = TypeVar("Metadata", bound=Message)


def parts(content: Bytes, form: type[Metadata]) -> tuple[Metadata, Bytes, int]:
    """The metadata of an entry, its payload (a view of `content`), and the bytes of both.

    :raises Corrupt: the checksum is wrong, or the metadata cannot be read.
    """
    try:
        body = _checked(content)
        end = 4 + _WORD(body, 0)[0]
        if end > len(body):
            raise Corrupt("its metadata is cut off")
        metadata: Metadata = form.FromString(body[4:end].tobytes())
    except (struct.error, DecodeError) as error:
        raise Corrupt("its metadata cannot be read") from error
    return metadata, body[end:], len(body)


def _checked(content: Bytes) -> Bytes:
    """The entry from the size of its metadata on, without the broker metadata before it."""
    magic, word = _HEAD(content, 0)
    if magic == _BROKER_METADATA:
        content = content[6 + word :]
        magic, word = _HEAD(content, 0)
    if magic != _CHECKSUM:
        return content
    body = content[6:]
    if google_crc32c.value(body) != word:
        raise Corrupt("its checksum is wrong")
    return body


def _in_common(metadata: EntryMetadata) -> bytes:
    """The serialized metadata without the fields that differ between copies."""
    metadata.ClearField("of_the_copy")
    metadata.ClearField("replicated_from")
    if properties := metadata.properties:
        kept = [property_pair for property_pair in properties if not property_pair.key.startswith(_REPLICATORS)]
        del properties[:]
        properties.extend(kept)
    written: bytes = metadata.SerializeToString()
    return written
