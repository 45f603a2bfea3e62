"""The messages of a stored entry: batches are unpacked, compressed ones decompressed, fields kept as stored (pure).

An optional field that is not set is None, so that it differs from a field that is set to nothing: an application sees
the key "" and no key as two different things, and so does a broker that compacts the topic.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol.pulsar_api_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata
from pulsar_fleet.messages.protocol.stored_entry import Bytes, Corrupt, parts

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
