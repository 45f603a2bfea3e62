"""Why one message is not the same on both sides, from what the brokers tell about its entry (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Headers = Mapping[str, str] | None
"""The `x-pulsar-…` headers of one entry; None where the broker holds it no more."""


class Cause(StrEnum):
    """Why a message differs; those of `INNOCENT` are no fault of the copy."""

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
    def innocent(self) -> bool:
        """Whether a true copy may show this."""
        return self in INNOCENT

    @property
    def sentence(self) -> str:
        """What it means, for a person."""
        return _SENTENCES[self]


INNOCENT = frozenset(
    {
        Cause.TRIMMED,
        Cause.EXPIRED,
        Cause.MARKER,
        Cause.ABORTED,
        Cause.OPEN_TRANSACTION,
        Cause.NOT_FOR_TARGET,
        Cause.REPLICATED_IN,
        Cause.FROM_TARGET,
        Cause.PUBLISHED_THERE,
        Cause.ENCRYPTED,
    }
)

_SENTENCES = {
    Cause.LOST: "the source still holds it, and nothing explains why the target does not",
    Cause.DUPLICATED: "the target holds more copies than the source",
    Cause.ALTERED: "the same message with another content",
    Cause.UNKNOWN_ORIGIN: "the source does not hold it, and nothing explains where it came from",
    Cause.CHUNK_LOST: "it was sent in chunks, and the target does not hold all of them",
    Cause.TRIMMED: "one side removed it by retention while the comparison ran",
    Cause.EXPIRED: "it is older than the namespace's TTL, so the replicator may have skipped it",
    Cause.MARKER: "it is a marker of the broker and no message",
    Cause.ABORTED: "its transaction was aborted",
    Cause.OPEN_TRANSACTION: "its transaction is still open",
    Cause.NOT_FOR_TARGET: "its producer named the clusters it goes to, and the target is not among them",
    Cause.REPLICATED_IN: "it was replicated in from a third cluster, and a replicator does not pass such messages on",
    Cause.FROM_TARGET: "it came from the target by replication the other way",
    Cause.PUBLISHED_THERE: "it was published on the target itself",
    Cause.ENCRYPTED: "it is encrypted: only its ciphertext can be compared, and a new producer makes another one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What holds for a topic as a whole.

    :param replicated: the copy was made by the replicator.
    :param ttl_seconds: of the namespace, 0 without.
    :param now: milliseconds since 1970.
    """

    source: str
    target: str
    replicated: bool
    ttl_seconds: int = 0
    now: int = 0


def why_missing(entry: Headers, publish_time: int, around: Circumstances) -> Cause:
    """Why the source's message is not on the target; `entry` is the source's."""
    if entry is None:
        return Cause.TRIMMED
    if (of_broker := _of_transaction(entry)) is not None:
        return of_broker
    if around.replicated and (origin := entry.get("x-pulsar-replicated-from")):
        return Cause.FROM_TARGET if origin == around.target else Cause.REPLICATED_IN
    wanted = entry.get("x-pulsar-replicated-to")
    if around.replicated and wanted and around.target not in wanted.split(","):
        return Cause.NOT_FOR_TARGET
    if not around.replicated and _encrypted(entry):
        return Cause.ENCRYPTED
    if around.replicated and around.ttl_seconds and publish_time + 1000 * around.ttl_seconds < around.now:
        return Cause.EXPIRED
    return Cause.CHUNK_LOST if "x-pulsar-chunk-id" in entry else Cause.LOST


def why_extra(entry: Headers, original: Headers, around: Circumstances) -> Cause:
    """Why the target's message is not on the source.

    :param original: the source's entry that a replicated one names as its own; only asked for then.
    """
    if entry is None:
        return Cause.TRIMMED
    if (of_broker := _of_transaction(entry)) is not None:
        return of_broker
    if not around.replicated:
        return Cause.ENCRYPTED if _encrypted(entry) else Cause.UNKNOWN_ORIGIN
    origin = entry.get("x-pulsar-replicated-from")
    if origin is None:
        return Cause.PUBLISHED_THERE
    if origin != around.source:
        return Cause.REPLICATED_IN
    return Cause.TRIMMED if original is None else Cause.UNKNOWN_ORIGIN


def explanation(causes: Iterable[Cause], around: Circumstances) -> str:
    """Why nothing is proven where every difference is innocent."""
    counted = Counter(causes)
    if counted.keys() <= {Cause.FROM_TARGET, Cause.PUBLISHED_THERE}:
        return (
            "every difference is a message that was published on the side that holds it while the other one "
            "replicated: stop the writers on both sides and verify with mapping 'whole'"
        )
    named = "; ".join(f"{number:,} × {cause.value}: {cause.sentence}" for cause, number in sorted(counted.items()))
    return f"every difference may be innocent ({around.source} → {around.target}): {named}"


def _of_transaction(entry: Mapping[str, str]) -> Cause | None:
    if "x-pulsar-marker-type" in entry:
        return Cause.MARKER
    if entry.get("x-pulsar-txn-aborted") == "true":
        return Cause.ABORTED
    # A broker says "uncommitted" of any entry behind the newest that readers may see; only with an id it is of one.
    if "x-pulsar-txnid-most-bits" in entry and entry.get("x-pulsar-txn-uncommitted") == "true":
        return Cause.OPEN_TRANSACTION
    return None


def _encrypted(entry: Mapping[str, str]) -> bool:
    return entry.get("x-pulsar-is-encrypted") == "true"
