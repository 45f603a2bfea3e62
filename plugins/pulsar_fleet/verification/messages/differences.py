"""Differences of messages: which ones are missing, extra or altered, in which fields, and why (pure)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.messages.scan import MessageRecord

MOST_ALTERED_FIELDS = 2
"""Two messages that differ in more fields are a missing and an extra message, not an altered one."""


class Kind(StrEnum):
    """How one message differs."""

    MISSING = "missing"
    EXTRA = "extra"
    ALTERED = "altered"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A content that the clusters do not have equally often, with the last copy on each cluster, if there is one."""

    pair: int
    in_source: int
    in_target: int
    at_source: MessageRecord | None
    at_target: MessageRecord | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One message that differs between source and target.

    :param source: its position there, `ledger:entry[index in batch]`; None if it is missing there.
    :param key: None if the message has none.
    :param fields: for an altered message, (field, value in the source, value in the target).
    :param copies: how often source and target have this content, if both have it.
    :param cause: the cause from the brokers' headers; None if they were not read.
    """

    kind: Kind
    source: str | None
    target: str | None
    key: str | None
    publish_time: int
    producer: str
    fields: tuple[tuple[str, str, str], ...] = ()
    copies: tuple[int, int] | None = None
    cause: Cause | None = None


def count_mismatches(source: Iterable[MessageRecord], target: Iterable[MessageRecord]) -> list[Mismatch]:
    """The contents whose numbers differ between the messages of source and target."""
    counts: dict[tuple[int, str], tuple[int, int]] = {}
    last: dict[tuple[int, str, bool], MessageRecord] = {}
    for is_target, records in ((False, source), (True, target)):
        for record in records:
            in_source, in_target = counts.get((record.pair, record.digest), (0, 0))
            counts[record.pair, record.digest] = (in_source, in_target + 1) if is_target else (in_source + 1, in_target)
            last[record.pair, record.digest, is_target] = record
    return [
        Mismatch(pair, in_source, in_target, last.get((pair, digest, False)), last.get((pair, digest, True)))
        for (pair, digest), (in_source, in_target) in counts.items()
        if in_source != in_target
    ]


def name_differences(mismatches: Sequence[Mismatch]) -> list[Difference]:
    """Differences of one topic in the order of its source. A message that only the source has is matched with one that
    only the target has, so that an altered message is one difference instead of two."""
    absent = sorted((item for item in mismatches if item.in_target == 0), key=_order_key)
    surplus = sorted((item for item in mismatches if item.in_source == 0), key=_order_key)
    named = [_repeated(item) for item in mismatches if item.in_source and item.in_target]
    for mismatch in absent:
        other = _closest(mismatch, surplus)
        if other is None:
            named.append(_one_sided(mismatch.at_source, Kind.MISSING))
        else:
            surplus.remove(other)
            named.append(_altered(mismatch, other))
    named += [_one_sided(mismatch.at_target, Kind.EXTRA) for mismatch in surplus]
    return sorted(named, key=lambda item: _numbers(item.source or item.target or ""))


_FIELDS = (
    ("key", "key"),
    ("ordering key", "ordering_key"),
    ("event time", "event_time"),
    ("delivery time", "deliver_at"),
    ("flags", "flags"),
    ("encryption", "encryption"),
)


def shown(value: str | int | None) -> str:
    """A field as text: a field that is not set is `absent`, which differs from an empty one."""
    return "absent" if value is None else repr(value)


def changed_fields(source: MessageRecord, target: MessageRecord) -> tuple[tuple[str, str, str], ...]:
    """The differing fields with both values; of payloads the digest and the size."""
    changed = [
        (label, shown(getattr(source, name)), shown(getattr(target, name)))
        for label, name in _FIELDS
        if getattr(source, name) != getattr(target, name)
    ]
    changed += _changed_properties(json.loads(source.properties), json.loads(target.properties))
    if source.payload != target.payload:
        changed.append(("payload", _payload(source), _payload(target)))
    return tuple(changed)


def _changed_properties(source: list[list[str]], target: list[list[str]]) -> list[tuple[str, str, str]]:
    source_values, target_values = {key: value for key, value in source}, {key: value for key, value in target}
    names = sorted(
        name
        for name in source_values.keys() | target_values.keys()
        if source_values.get(name) != target_values.get(name)
    )
    return [(f"property {name!r}", shown(source_values.get(name)), shown(target_values.get(name))) for name in names]


def _payload(record: MessageRecord) -> str:
    return f"{record.size:,} bytes {record.payload[:8]}…"


def _closest(mismatch: Mismatch, candidates: Sequence[Mismatch]) -> Mismatch | None:
    """The candidate with the fewest altered fields; None if all candidates differ in too many fields."""
    best: tuple[int, int, int] | None = None
    chosen = None
    for index, candidate in enumerate(candidates):
        if mismatch.at_source is None or candidate.at_target is None:
            continue
        distance = _distance(mismatch.at_source, candidate.at_target)
        if distance is not None and (best is None or (*distance, index) < best):
            best, chosen = (*distance, index), candidate
    return chosen


def _distance(source: MessageRecord, target: MessageRecord) -> tuple[int, int] | None:
    """(altered fields, milliseconds between the publish times); None if they cannot be the same message."""
    altered = len(changed_fields(source, target))
    if altered > MOST_ALTERED_FIELDS or (source.producer != target.producer and not _identified(source, target)):
        return None
    return altered, abs(source.publish_time - target.publish_time)


def _identified(source: MessageRecord, target: MessageRecord) -> bool:
    """Whether messages of different producers share a field that identifies a message."""
    same = (
        source.payload == target.payload,
        source.event_time == target.event_time and bool(source.event_time),
        source.key == target.key and bool(source.key),
    )
    return sum(same) >= 1


def _one_sided(record: MessageRecord | None, kind: Kind) -> Difference:
    assert record is not None
    where = position_text(record)
    source, target = (where, None) if kind is Kind.MISSING else (None, where)
    return Difference(kind, source, target, record.key, record.publish_time, record.producer)


def _repeated(mismatch: Mismatch) -> Difference:
    assert mismatch.at_source is not None
    assert mismatch.at_target is not None
    kind = Kind.MISSING if mismatch.in_target < mismatch.in_source else Kind.EXTRA
    record = mismatch.at_source
    positions = (position_text(record), position_text(mismatch.at_target))
    return Difference(
        kind,
        *positions,
        record.key,
        record.publish_time,
        record.producer,
        copies=(mismatch.in_source, mismatch.in_target),
    )


def _altered(missing: Mismatch, extra: Mismatch) -> Difference:
    assert missing.at_source is not None
    assert extra.at_target is not None
    source, target = missing.at_source, extra.at_target
    fields = changed_fields(source, target) or (("publish time", str(source.publish_time), str(target.publish_time)),)
    where = (position_text(source), position_text(target))
    return Difference(Kind.ALTERED, *where, source.key, source.publish_time, source.producer, fields)


def position_text(record: MessageRecord) -> str:
    """The position of a message: `ledger:entry[index in batch]`."""
    return f"{record.ledger}:{record.entry}" + (f"[{record.batch}]" if record.batch >= 0 else "")


def _numbers(position: str) -> list[int]:
    return [int(part) for part in position.replace("[", ":").rstrip("]").split(":") if part]


def _order_key(mismatch: Mismatch) -> tuple[int, int, int]:
    record = mismatch.at_source or mismatch.at_target
    assert record is not None
    return record.ledger, record.entry, record.batch


Headers = Mapping[str, str] | None
"""The `x-pulsar-…` headers of one entry; None if the broker no longer has it."""


class Cause(StrEnum):
    """Why a message differs; the causes in `_EXPECTED` are not faults of the copy."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    ALTERED = "altered"
    UNKNOWN_ORIGIN = "unknown origin"
    CHUNK_LOST = "chunk lost"
    TRIMMED = "trimmed"
    EXPIRED = "expired"
    MARKER = "marker"
    ABORTED = "aborted transaction"
    OPEN_TRANSACTION = "open transaction"
    NOT_FOR_TARGET = "not for the target"
    REPLICATED_IN = "replicated in"
    FROM_TARGET = "came from the target"
    PUBLISHED_THERE = "published on the target"
    ENCRYPTED = "encrypted"

    @property
    def expected(self) -> bool:
        """Whether a correct copy may have this difference."""
        return self in _EXPECTED

    @property
    def sentence(self) -> str:
        """The meaning, as text."""
        return _EXPECTED.get(self) or _FAULTS[self]


_FAULTS = {
    Cause.LOST: "the source still holds it, and nothing explains why the target does not",
    Cause.DUPLICATED: "the target has more copies than the source",
    Cause.ALTERED: "the same message with different content",
    Cause.UNKNOWN_ORIGIN: "the source does not have it, and nothing explains where it came from",
    Cause.CHUNK_LOST: "it was sent in chunks, and the target does not have all of them",
}
_EXPECTED = {
    Cause.TRIMMED: "retention removed it on one cluster during the comparison",
    Cause.EXPIRED: "it is older than the namespace's TTL, so the replicator may have skipped it",
    Cause.MARKER: "it is a marker of the broker, not a message",
    Cause.ABORTED: "its transaction was aborted",
    Cause.OPEN_TRANSACTION: "its transaction is still open",
    Cause.NOT_FOR_TARGET: "its producer restricted the replication clusters, and the target is not one of them",
    Cause.REPLICATED_IN: "it was replicated from a third cluster, and a replicator does not forward such messages",
    Cause.FROM_TARGET: "it came from the target by replication in the other direction",
    Cause.PUBLISHED_THERE: "it was published on the target directly",
    Cause.ENCRYPTED: "it is encrypted: only ciphertexts can be compared, and another producer makes another one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The circumstances of a topic.

    :param replicated: the replicator made the copy.
    :param ttl_seconds: message TTL of the namespace; 0 without one.
    :param now: milliseconds since 1970.
    """

    source: str
    target: str
    replicated: bool
    ttl_seconds: int = 0
    now: int = 0


def cause_of_missing(entry: Headers, publish_time: int, circumstances: Circumstances) -> Cause:
    """Why the target lacks a message of the source; `entry` is the source's."""
    if entry is None:
        return Cause.TRIMMED
    if (transaction_cause := _of_transaction(entry)) is not None:
        return transaction_cause
    if circumstances.replicated and (origin := entry.get("x-pulsar-replicated-from")):
        return Cause.FROM_TARGET if origin == circumstances.target else Cause.REPLICATED_IN
    clusters = entry.get("x-pulsar-replicated-to")
    if circumstances.replicated and clusters and circumstances.target not in clusters.split(","):
        return Cause.NOT_FOR_TARGET
    if not circumstances.replicated and _encrypted(entry):
        return Cause.ENCRYPTED
    if (
        circumstances.replicated
        and circumstances.ttl_seconds
        and publish_time + 1000 * circumstances.ttl_seconds < circumstances.now
    ):
        return Cause.EXPIRED
    return Cause.CHUNK_LOST if "x-pulsar-chunk-id" in entry else Cause.LOST


def cause_of_extra(entry: Headers, original: Headers, circumstances: Circumstances) -> Cause:
    """Why the source lacks a message of the target.

    :param original: the source's entry at the source position of a replicated entry.
    """
    if entry is None:
        return Cause.TRIMMED
    if (transaction_cause := _of_transaction(entry)) is not None:
        return transaction_cause
    if not circumstances.replicated:
        return Cause.ENCRYPTED if _encrypted(entry) else Cause.UNKNOWN_ORIGIN
    origin = entry.get("x-pulsar-replicated-from")
    if origin is None:
        return Cause.PUBLISHED_THERE
    if origin != circumstances.source:
        return Cause.REPLICATED_IN
    return Cause.TRIMMED if original is None else Cause.UNKNOWN_ORIGIN


def explanation(causes: Iterable[Cause], circumstances: Circumstances) -> str:
    """Why nothing is proven if all differences are expected."""
    counted = Counter(causes)
    if counted.keys() <= {Cause.FROM_TARGET, Cause.PUBLISHED_THERE}:
        return (
            "every difference is a message that was published on the cluster that has it, while the other cluster "
            "replicated: stop the producers on both clusters and verify with mapping 'whole'"
        )
    named = "; ".join(f"{number:,} × {cause.value}: {cause.sentence}" for cause, number in sorted(counted.items()))
    return f"every difference may be expected ({circumstances.source} → {circumstances.target}): {named}"


def _of_transaction(entry: Mapping[str, str]) -> Cause | None:
    if "x-pulsar-marker-type" in entry:
        return Cause.MARKER
    if entry.get("x-pulsar-txn-aborted") == "true":
        return Cause.ABORTED
    # A broker reports "uncommitted" for every entry that readers may not get yet; only an id shows a transaction.
    if "x-pulsar-txnid-most-bits" in entry and entry.get("x-pulsar-txn-uncommitted") == "true":
        return Cause.OPEN_TRANSACTION
    return None


def _encrypted(entry: Mapping[str, str]) -> bool:
    return entry.get("x-pulsar-is-encrypted") == "true"
