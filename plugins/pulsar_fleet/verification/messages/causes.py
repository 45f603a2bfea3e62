"""The cause of a difference of one message, from the headers that the brokers return for its entry (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

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
