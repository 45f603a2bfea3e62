"""The two passes over messages, for any engine: add them up, and list those that may differ."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import xxhash

from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.messages.credentials import digest_key
from pulsar_fleet.messages.digests import ALL, DigestRow, RangeDigester, bucket_of, digest, own_properties
from pulsar_fleet.messages.engines.chunks import reaching_back
from pulsar_fleet.messages.engines.stored_entry import StoredEntry
from pulsar_fleet.messages.ranges import EngineName, Range

log = logging.getLogger(__name__)

_SUM_EVERY = 16_384
Kept = TypeVar("Kept")


class Engine(Protocol):
    """A way to read what is stored."""

    def expect(self, ranges: Sequence[Range]) -> None:
        """A hint that these ranges are read next, in this order; it may be given again."""
        ...

    def read(self, wanted: Range) -> Iterator[Sequence[Any]]:
        """All of the range in order, in lists: messages, or for a range of `EngineName.ENTRY` entries.

        A message is a `StoredMessage` with an id and a producer's name, an entry is a `StoredEntry`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sighting:
    """One message as it lies on one side, with what is needed to say how it differs from another.

    Times are milliseconds since 1970; `event_time` is 0 when not set; `batch` is -1 outside of a batch. The payload is
    shown by its digest and its size in bytes only: it may be large, and is not ours to copy.
    """

    pair: int
    digest: str
    ledger: int
    entry: int
    batch: int
    publish_time: int
    event_time: int
    key: str
    ordering_key: str
    null: bool
    properties: str
    payload: str
    size: int
    producer: str


def sum_up(engine: Engine, wanted: Range, buckets: int) -> list[DigestRow]:
    """Digests of a range, one row a bucket; or one row with the reason why it could not be read as a whole.

    A failure that may pass is tried once more. The reason travels as a row so that one unreadable topic leaves the
    verdicts of the others.
    """
    for last_try in (False, True):
        try:
            return reaching_back(wanted, lambda part: _sums(engine, part, buckets))
        except Unavailable as error:
            log.info("%s: %s", "gave up" if last_try else "reading again", error)
            problem = str(error)
        except (FleetError, UnicodeDecodeError) as error:
            problem = f"{wanted.topic}: {error}" if isinstance(error, UnicodeDecodeError) else str(error)
            break
    return [DigestRow(wanted.pair, wanted.index, ALL, problem=problem)]


def _sums(engine: Engine, wanted: Range, buckets: int) -> list[DigestRow]:
    digester = RangeDigester(buckets)
    by_entry = wanted.engine is EngineName.ENTRY
    add = partial(_add_entries, digester) if by_entry else digester.add
    waiting: list[Any] = []
    for found in engine.read(wanted) if by_entry else _digests(engine, wanted):
        waiting.extend(found)
        if len(waiting) >= _SUM_EVERY:
            add(waiting)
            waiting = []
    if waiting:
        add(waiting)
    return digester.rows(wanted.pair, wanted.index)


def _add_entries(digester: RangeDigester, entries: Sequence[StoredEntry]) -> None:
    digester.add([entry.digest for entry in entries], [entry.messages for entry in entries])


def _digests(engine: Engine, wanted: Range) -> Iterator[list[bytes]]:
    content = content_digest(wanted)
    if wanted.compacted:
        yield latest_values(engine, wanted, content)
        return
    for messages in engine.read(wanted):
        yield [content(message) for message in messages]


def content_digest(wanted: Range) -> Callable[[Any], bytes]:
    """How the messages of a range are hashed. `InvalidRequest` where they need a key and the environment has none."""
    publish_time = wanted.publish_time
    key = digest_key() if wanted.keyed else None
    return lambda message: digest(message, publish_time=publish_time, key=key)


def latest_values(engine: Engine, wanted: Range, keep: Callable[[Any], Kept]) -> list[Kept]:
    """The latest message of each key, as `keep` makes it, in topic order; what is kept is all that is held in memory.

    Left out are keys whose latest message has no payload (they are deleted) and messages without a key: compaction
    drops both sooner or later, on each cluster at its own time.
    """
    latest: dict[str, Kept] = {}
    for messages in engine.read(wanted):
        for message in messages:
            key = message.partition_key()
            latest.pop(key, None)
            if key and message.data():
                latest[key] = keep(message)
    return list(latest.values())


def list_messages(engine: Engine, wanted: Range, only: frozenset[int], buckets: int) -> Iterator[Sighting]:
    """The messages of a range that fall into the buckets `only`, when all of it was read."""
    yield from reaching_back(wanted, lambda part: _listed(engine, part, only, buckets))


def _listed(engine: Engine, wanted: Range, only: frozenset[int], buckets: int) -> list[Sighting]:
    content_of = content_digest(wanted)

    def keep(message: Any) -> Sighting | None:
        content = content_of(message)
        return _sighting(message, wanted, content) if bucket_of(content, buckets) in only else None

    if wanted.compacted:
        return [found for found in latest_values(engine, wanted, keep) if found]
    return [found for messages in engine.read(wanted) for message in messages if (found := keep(message))]


def _sighting(message: Any, wanted: Range, content: bytes) -> Sighting:
    lies = message.message_id()
    payload = message.data()
    return Sighting(
        pair=wanted.pair,
        digest=content.hex(),
        ledger=lies.ledger_id(),
        entry=lies.entry_id(),
        batch=lies.batch_index(),
        publish_time=message.publish_timestamp(),
        event_time=message.event_timestamp(),
        key=message.partition_key(),
        ordering_key=message.ordering_key(),
        null=message.has_null_value(),
        properties=json.dumps(own_properties(message.properties())),
        payload=xxhash.xxh3_128_hexdigest(payload),
        size=len(payload),
        producer=message.producer_name(),
    )
