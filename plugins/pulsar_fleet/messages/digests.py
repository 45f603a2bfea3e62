"""Additive digests of messages: per bucket, in any order, over any number of tasks (pure).

A message's content is encoded canonically and hashed with xxh3-128. A bucket holds the number of messages and the sums
of the four 32-bit lanes of their hashes: equal multisets give equal buckets, and two different multisets have equal
buckets by accident about once in 2^128. Sums, not XOR: with XOR a message that is lost twice would cancel out. The
order digest T = Σ ordinal · hash (mod 2^64) covers a whole range; two ranges merge by T(xy) = T(x) + T(y) + |x| · S(y).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
import xxhash

from pulsar_fleet.cluster.json import JsonObject

if TYPE_CHECKING:  # planning does not need protobuf
    from pulsar_fleet.messages.protocol.stored_entry import StoredMessage

ENCODING_VERSION = 2
"""Increase it when the digest of the same message changes: proofs of an earlier version are not continued."""

BUCKETS = 256
ALL = -1
"""The bucket number of the row that covers all messages of a range."""

_WORD = 1 << 64
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def own_properties(message: StoredMessage) -> list[tuple[bytes, bytes]]:
    """The application's properties, sorted; without the ones that the replicator adds (`__MSG_PROP_…`)."""
    return sorted(item for item in message.properties.items() if not item[0].startswith(b"__MSG_PROP_"))


def encode(message: StoredMessage, *, publish_time: bool) -> bytes:
    """The canonical bytes of a message (version 2): fields as Python literals, in ASCII, then the payload.

    Quotes delimit every field, so ("ab", "c") and ("a", "bc") differ, and a field that is not set is `None`, so that it
    differs from an empty one. Ids, producer and schema version are not encoded, because they legitimately differ
    between a message and its copy.
    """
    header = (
        f"{message.event_time},{message.publish_time if publish_time else 0},{message.deliver_at},"
        f"{message.key!r},{message.ordering_key!r},"
        f"{message.key_is_base64:d}{message.null_key:d}{message.null_value:d},"
        f"{message.encryption!r},{own_properties(message) if message.properties else []}|"
    )
    return header.encode() + message.payload


def digest(message: StoredMessage, *, publish_time: bool, key: bytes | None = None) -> bytes:
    """16 bytes of the canonical encoding: xxh3-128, or BLAKE2b with a key, which resists forged collisions."""
    encoded = encode(message, publish_time=publish_time)
    return hashlib.blake2b(encoded, digest_size=16, key=key).digest() if key else xxhash.xxh3_128_digest(encoded)


def bucket_of(content: bytes, buckets: int) -> int:
    """The bucket of a message, by the first two bytes of its digest `content`."""
    return (content[0] | content[1] << 8) % buckets


@dataclass(frozen=True, slots=True)
class Sums:
    """A multiset of messages: their number, and the four lane sums of the hashes of the messages or of their
    entries.
    """

    count: int = 0
    lanes: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __add__(self, other: Sums) -> Sums:
        a, b = self.lanes, other.lanes
        return Sums(self.count + other.count, (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]))


@dataclass(frozen=True, slots=True)
class DigestRow:
    """The part of one range in one bucket, or in `ALL`; only the row of `ALL` has an order digest.

    :param problem: why the range could not be read; then the row holds nothing else.
    """

    pair: int
    index: int
    bucket: int
    sums: Sums = Sums()
    order: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TopicDigest:
    """The digest of a topic between its bounds.

    :param problems: why ranges could not be read; with a problem, the sums are not those of the topic.
    """

    buckets: Mapping[int, Sums] = field(default_factory=dict)
    all: Sums = Sums()
    order: int = 0
    problems: tuple[str, ...] = ()

    @classmethod
    def fold(cls, rows: Iterable[DigestRow]) -> Self:
        """Combine the rows of one topic's ranges; the rows may come in any order, each row once."""
        buckets: dict[int, Sums] = {}
        whole, order = Sums(), 0
        problems: list[str] = []
        for row in sorted(rows, key=lambda row: row.index):
            if row.problem:
                problems.append(row.problem)
            elif row.bucket == ALL:
                hashes = row.sums.lanes[0] + (row.sums.lanes[1] << 32)
                order = (order + row.order + whole.count * hashes) % _WORD
                whole += row.sums
            else:
                buckets[row.bucket] = buckets.get(row.bucket, Sums()) + row.sums
        return cls(buckets, whole, order, tuple(problems))

    def following(self, earlier: JsonObject) -> TopicDigest:
        """The digest, without buckets, of an earlier part (as `to_json` wrote it) followed by this part."""
        text = earlier["sums"]
        first, second, third, fourth = (int(text[at : at + 16], 16) for at in range(0, 64, 16))
        before = Sums(int(earlier["messages"]), (first, second, third, fourth))
        hashes = self.all.lanes[0] + (self.all.lanes[1] << 32)
        order = (int(earlier["order"], 16) + self.order + before.count * hashes) % _WORD
        return TopicDigest(all=before + self.all, order=order)

    def to_json(self) -> JsonObject:
        """The proof: count and sums of all messages, in hexadecimal."""
        lanes = "".join(f"{lane % _WORD:016x}" for lane in self.all.lanes)
        return {"messages": self.all.count, "sums": lanes, "order": f"{self.order:016x}"}


def differing_buckets(source: TopicDigest, target: TopicDigest) -> frozenset[int]:
    """The buckets whose messages differ between source and target."""
    numbers = source.buckets.keys() | target.buckets.keys()
    return frozenset(number for number in numbers if source.buckets.get(number) != target.buckets.get(number))


class RangeDigester:
    """Adds up the messages of one range, with numpy, because there may be millions."""

    def __init__(self, buckets: int = BUCKETS) -> None:
        self._counts = np.zeros(buckets, np.int64)
        self._lanes = np.zeros((4, buckets), np.int64)
        self._order = 0
        self._count = 0

    def add(self, digests: Sequence[bytes], sizes: Sequence[int] | None = None) -> None:
        """Add the digests of the next messages, or of the next entries, which hold `sizes` messages.

        An entry counts for the number of its messages; its ordinal is that of its first message.
        """
        words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2)
        counts = np.ones(len(words), np.int64) if sizes is None else np.asarray(sizes, np.int64)
        numbers = ((words[:, 0] & np.uint64(0xFFFF)) % np.uint64(len(self._counts))).astype(np.int64)
        ordinals = (np.cumsum(counts) - counts + self._count + 1).astype(np.uint64)
        self._order = (self._order + int(np.add.reduce(ordinals * words[:, 0], dtype=np.uint64))) % _WORD
        self._count += int(counts.sum())
        np.add.at(self._counts, numbers, counts)
        lanes = (words[:, 0] & _LOW, words[:, 0] >> _HALF, words[:, 1] & _LOW, words[:, 1] >> _HALF)
        for total, lane in zip(self._lanes, lanes, strict=True):
            np.add.at(total, numbers, lane.astype(np.int64))

    def rows(self, pair: int, index: int) -> list[DigestRow]:
        """One row for each bucket with messages, and the row `ALL`, which proves that the range was read."""
        rows = [
            DigestRow(pair, index, int(n), _sums(self._counts[n], self._lanes[:, n])) for n in self._counts.nonzero()[0]
        ]
        whole = _sums(self._count, self._lanes.sum(axis=1))
        return [*rows, DigestRow(pair, index, ALL, whole, self._order)]


def _sums(count: int, lanes: Iterable[int]) -> Sums:
    first, second, third, fourth = (int(lane) for lane in lanes)
    return Sums(int(count), (first, second, third, fourth))
