"""A stored entry as a broker sends it: checked, and digested as a whole without unpacking its batch (pure).

The digest covers what geo-replication preserves: the payload as it is stored (batched, compressed or encrypted) and
the metadata before it, without the fields that differ in a copy: the clusters it comes from and goes to, ids of schemas
and transactions, and the replicator's properties `__MSG_PROP_…`.

An optional field that is not set is None, so that it differs from a field that is set to nothing: an application sees
the key "" and no key as two different things, and so does a broker that compacts the topic.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import google_crc32c
import xxhash
from google.protobuf.message import DecodeError, Message

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol.pulsar_api_pb2 import (
    EntryMetadata,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

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


_ZLIB = 2
_CODECS = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
_ONE_MESSAGE = -1


class StoredMessage(NamedTuple):
    """One message as it is stored on one cluster.

    :param batch: its index in the batch; -1 outside of a batch.
    :param publish_time: of the entry, milliseconds since 1970; so are `event_time` and `deliver_at`.
    :param key_is_base64: the producer gave bytes as the key, which are stored in base64.
    :param null_key: the key of a key-value pair is null.
    :param null_value: a tombstone, which is not a message with an empty payload.
    :param encryption: keys and parameters of a message that is stored encrypted; None for plain text. An encrypted
        batch is one message.
    :param empty: an encrypted message whose content is empty: where it is compressed, its metadata has the size before,
        by which a broker's compaction deletes the key (observed on 4.2.4).
    """

    ledger: int
    entry: int
    batch: int
    publish_time: int
    producer: bytes
    schema_version: bytes | None
    key: bytes | None
    key_is_base64: bool
    null_key: bool
    ordering_key: bytes | None
    event_time: int | None
    deliver_at: int | None
    null_value: bool
    properties: Mapping[bytes, bytes]
    payload: bytes
    encryption: bytes | None = None
    empty: bool = False

    @property
    def deletes_key(self) -> bool:
        """Whether it is the end of its key in the view of a compacted topic."""
        return self.empty or not self.payload

    @property
    def position(self) -> Position:
        """The position of the entry that holds the message."""
        return Position(self.ledger, self.entry)


class EntryContent(NamedTuple):
    """An entry before its messages are unpacked; see `StoredEntry` for the fields of the same name."""

    ledger: int
    entry: int
    messages: int
    size: int
    marker: bool
    metadata: MessageMetadata
    payload: bytes

    @property
    def origin(self) -> str:
        """The cluster whose replicator wrote it; empty for what a producer of this cluster wrote."""
        return self.metadata.replicated_from.decode()

    @property
    def position(self) -> Position:
        """The position of the entry."""
        return Position(self.ledger, self.entry)


def read_content(ledger: int, entry: int, content: Bytes) -> EntryContent:
    """Check the bytes that follow a message command, and copy them; raises `Corrupt`."""
    metadata, payload, size = parts(content, MessageMetadata)
    messages = metadata.num_messages_in_batch or 1
    return EntryContent(ledger, entry, messages, size, metadata.HasField("marker_type"), metadata, payload.tobytes())


def text(stored: bytes) -> str:
    """Stored bytes as text; bytes that are not UTF-8 are escaped."""
    return stored.decode(errors="backslashreplace")


def optional_text(stored: bytes | None) -> str | None:
    """As `text`; None stays None."""
    return None if stored is None else text(stored)


def signed(milliseconds: int) -> int:
    """A stored time, of 64 bits without a sign, as brokers and Java clients read it."""
    return milliseconds - (1 << 64) if milliseconds >> 63 else milliseconds


def unpack(content: EntryContent, payload: bytes) -> Iterator[StoredMessage]:
    """The messages of an entry in order, without those that a compaction took out of the batch.

    :param payload: of the entry, or of all chunks of the message that ends with this entry.
    :raises Corrupt: the payload cannot be decompressed, or is not the batch that the metadata says.
    """
    metadata = content.metadata
    if metadata.encryption_keys:
        empty = metadata.HasField("uncompressed_size") and not metadata.uncompressed_size
        yield _single(content, payload)._replace(encryption=_encryption(metadata), empty=empty)
        return
    if metadata.compression:
        payload = _decompress(payload, metadata.compression, metadata.uncompressed_size)
    if metadata.HasField("num_messages_in_batch"):
        yield from _batch(content, payload)
    else:
        yield _single(content, payload)


def _single(content: EntryContent, payload: bytes) -> StoredMessage:
    return _message(content, content.metadata, _ONE_MESSAGE, payload)


def _batch(content: EntryContent, payload: bytes) -> Iterator[StoredMessage]:
    at = 0
    try:
        for number in range(content.messages):
            begin = at + 4
            middle = begin + int.from_bytes(payload[at:begin], "big")
            single = SingleMessageMetadata.FromString(payload[begin:middle])
            at = middle + single.payload_size
            if middle > len(payload) or at > len(payload):
                raise Corrupt(f"its batch is cut off in message {number + 1} of {content.messages}")
            if not single.compacted_out:
                yield _message(content, single, number, payload[middle:at])
    except DecodeError as error:
        raise Corrupt("the metadata of a message in its batch cannot be read") from error


def _message(
    content: EntryContent, fields: MessageMetadata | SingleMessageMetadata, batch: int, payload: bytes
) -> StoredMessage:
    metadata, is_set = content.metadata, fields.HasField
    return StoredMessage(
        content.ledger,
        content.entry,
        batch,
        metadata.publish_time,
        metadata.producer_name,
        metadata.schema_version if metadata.HasField("schema_version") else None,
        fields.partition_key if is_set("partition_key") else None,
        is_set("partition_key") and fields.partition_key_b64_encoded,
        fields.null_partition_key,
        fields.ordering_key if is_set("ordering_key") else None,
        fields.event_time if is_set("event_time") else None,
        metadata.deliver_at_time if metadata.HasField("deliver_at_time") else None,
        fields.null_value,
        _mapping(fields.properties),
        payload,
    )


def _mapping(properties: Iterable[KeyValue]) -> Mapping[bytes, bytes]:
    # Clients make a map of the properties, so of two with one name the last counts.
    return {item.key: item.value for item in properties} if properties else {}


def _encryption(metadata: MessageMetadata) -> bytes:
    keys = sorted(metadata.encryption_keys)
    return repr((keys, metadata.encryption_algo, metadata.encryption_param)).encode()


def _decompress(payload: bytes, compression: int, size: int) -> bytes:
    if not size:
        return b""
    try:
        if compression == _ZLIB:
            return zlib.decompress(payload)
        plain: bytes = _codec(compression).decompress(payload, decompressed_size=size, asbytes=True)
    except (OSError, ValueError, KeyError, zlib.error) as error:
        raise Corrupt(f"its payload cannot be decompressed (compression {compression}): {error}") from error
    return plain


@cache
def _codec(compression: int) -> Any:
    # An executor that reads no compressed topic needs no codec.
    import pyarrow as pa

    return pa.Codec(_CODECS[compression])
