"""The two passes over messages, for any engine: add up their digests, and list the ones that may differ."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import xxhash

from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.messages.credentials import digest_key
from pulsar_fleet.messages.digests import ALL, DigestRow, RangeDigester, bucket_of, digest, own_properties
from pulsar_fleet.messages.engines.base import Engine
from pulsar_fleet.messages.engines.engines import with_lookback
from pulsar_fleet.messages.protocol.stored_entry import StoredEntry, StoredMessage, optional_text, signed, text
from pulsar_fleet.messages.ranges import EngineName, Range

log = logging.getLogger(__name__)

_SUM_EVERY = 16_384
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message as it is stored on one cluster, with the fields that describe how it differs from another message.

    Times are milliseconds since 1970; a field that is not set is None; `batch` is -1 outside of a batch. Of the payload
    only the digest and the size in bytes are kept: it may be large or confidential.

    :param flags: what else the message says about its key and value, such as "base64 key"; see `_flags`.
    """

    pair: int
    digest: str
    ledger: int
    entry: int
    batch: int
    publish_time: int
    event_time: int | None
    deliver_at: int | None
    key: str | None
    ordering_key: str | None
    flags: str
    encryption: str | None
    properties: str
    payload: str
    size: int
    producer: str


def sum_up(engine: Engine, entry_range: Range, buckets: int) -> list[DigestRow]:
    """Digests of a range, one row for each bucket; or one row with the problem why the range could not be read.

    A transient failure is retried once. The problem is a row, so that one unreadable topic does not prevent the
    verdicts of the other topics.
    """
    for last_attempt in (False, True):
        try:
            return with_lookback(entry_range, lambda part: _sums(engine, part, buckets))
        except Unavailable as error:
            log.info("%s: %s", "the second attempt failed" if last_attempt else "reading the range again", error)
            problem = str(error)
        except (FleetError, UnicodeDecodeError) as error:
            problem = f"{entry_range.topic}: {error}" if isinstance(error, UnicodeDecodeError) else str(error)
            break
    return [DigestRow(entry_range.pair, entry_range.index, ALL, problem=problem)]


def _sums(engine: Engine, entry_range: Range, buckets: int) -> list[DigestRow]:
    digester = RangeDigester(buckets)
    by_entry = entry_range.engine is EngineName.ENTRY
    add = partial(_add_entries, digester) if by_entry else digester.add
    pending: list[Any] = []
    for chunk in engine.read(entry_range) if by_entry else _digests(engine, entry_range):
        pending.extend(chunk)
        if len(pending) >= _SUM_EVERY:
            add(pending)
            pending = []
    if pending:
        add(pending)
    return digester.rows(entry_range.pair, entry_range.index)


def _add_entries(digester: RangeDigester, entries: Sequence[StoredEntry]) -> None:
    digester.add([entry.digest for entry in entries], [entry.messages for entry in entries])


def _digests(engine: Engine, entry_range: Range) -> Iterator[list[bytes]]:
    content = content_digest(entry_range)
    if entry_range.compacted:
        yield latest_values(engine, entry_range, content)
        return
    for messages in engine.read(entry_range):
        yield [content(message) for message in messages]


def content_digest(entry_range: Range) -> Callable[[Any], bytes]:
    """The function that hashes messages of a range. `InvalidRequest` if it needs a key and the environment has none."""
    publish_time = entry_range.publish_time
    key = digest_key() if entry_range.keyed else None
    return lambda message: digest(message, publish_time=publish_time, key=key)


def latest_values(engine: Engine, entry_range: Range, keep: Callable[[Any], Kept]) -> list[Kept]:
    """The latest message of each key, converted by `keep`, in topic order; only the converted messages use memory.

    Keys whose latest message has no content (deleted keys) and messages without a key are left out: compaction drops
    both, on each cluster at a different time.
    """
    latest: dict[bytes, Kept] = {}
    for messages in engine.read(entry_range):
        for message in messages:
            if message.key is not None:
                latest.pop(message.key, None)
                if not message.deletes_key:
                    latest[message.key] = keep(message)
    return list(latest.values())


def list_messages(
    engine: Engine, entry_range: Range, selected: frozenset[int], buckets: int
) -> Iterator[MessageRecord]:
    """The messages of a range that are in the `selected` buckets, after all of the range was read."""
    yield from with_lookback(entry_range, lambda part: _listed(engine, part, selected, buckets))


def _listed(engine: Engine, entry_range: Range, selected: frozenset[int], buckets: int) -> list[MessageRecord]:
    content_of = content_digest(entry_range)

    def keep(message: Any) -> MessageRecord | None:
        content = content_of(message)
        return _record(message, entry_range, content) if bucket_of(content, buckets) in selected else None

    if entry_range.compacted:
        return [record for record in latest_values(engine, entry_range, keep) if record]
    return [record for messages in engine.read(entry_range) for message in messages if (record := keep(message))]


def _record(message: StoredMessage, entry_range: Range, content: bytes) -> MessageRecord:
    return MessageRecord(
        pair=entry_range.pair,
        digest=content.hex(),
        ledger=message.ledger,
        entry=message.entry,
        batch=message.batch,
        publish_time=signed(message.publish_time),
        event_time=None if message.event_time is None else signed(message.event_time),
        deliver_at=message.deliver_at,
        key=optional_text(message.key),
        ordering_key=optional_text(message.ordering_key),
        flags=_flags(message),
        encryption=None if message.encryption is None else xxhash.xxh3_64_hexdigest(message.encryption)[:8],
        properties=json.dumps([[text(name), text(value)] for name, value in own_properties(message)]),
        payload=xxhash.xxh3_128_hexdigest(message.payload),
        size=len(message.payload),
        producer=text(message.producer),
    )


def _flags(message: StoredMessage) -> str:
    """The flags of a message in words."""
    words = [
        (message.key_is_base64, "base64 key"),
        (message.null_key, "null key"),
        (message.null_value, "null value"),
    ]
    return ", ".join(word for is_set, word in words if is_set)
