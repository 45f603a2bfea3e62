"""What is to be verified, with its bounds frozen: the document that a job gets (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Self

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import BUCKETS
from pulsar_fleet.messages.ranges import ENTRIES_PER_RANGE, EngineName, Range, TopicBounds, compacted_range, cut, group
from pulsar_fleet.verification.coverage import Coverage

SCHEMA_VERSION = 3


class Mapping(StrEnum):
    """How entries of the target belong to entries of the source."""

    AUTO = "auto"
    """`replicated` where the namespace replicates to the target or a topic's first entry says where it is from."""
    REPLICATED = "replicated"
    """The target's entries carry their source position; what was published directly on the target is left out."""
    WHOLE = "whole"
    """Everything against everything: both sides were written by producers."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a cluster answers; credentials travel apart, in the environment."""

    name: str
    admin_url: str
    service_url: str

    @classmethod
    def of(cls, connection: ClusterConnection, name: str) -> Self:
        """The addresses of a connection, under the name by which findings call the cluster."""
        return cls(name, connection.admin_url, connection.require_service_url())


@dataclass(frozen=True, slots=True)
class Pair:
    """One topic on both sides, each between its bounds.

    :param publish_time: whether publish times must be equal too.
    :param notes: what a reader of the verdict has to know, such as a beginning that retention has removed.
    :param compacted: only the latest value of each key is compared.
    :param earlier: the proof of what came before the bounds, by the same engine, which the new one continues; see
        `composing.earlier_proofs`.
    :param engine: who reads both sides; `engine_reason` says why, as the end of a sentence.
    :param keyed: messages are hashed with a key.
    """

    topic: str
    source: TopicBounds
    target: TopicBounds
    publish_time: bool = False
    notes: tuple[str, ...] = ()
    compacted: bool = False
    earlier: JsonObject | None = None
    engine: EngineName = EngineName.CLIENT
    engine_reason: str = ""
    keyed: bool = False

    def bounds(self, side: Side) -> TopicBounds:
        """The bounds on one side."""
        return self.source if side is Side.SOURCE else self.target


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was decided without reading a message.

    :param different: True when it proves a difference, False when it only prevents a proof.
    :param scope: a topic, or a namespace when it holds for all of it.
    """

    namespace: str
    scope: str
    different: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Namespaces to verify between two clusters.

    :param examples: how many differences are named per topic.
    :param max_bytes_per_second: read from any one broker, over all tasks; None without a limit.
    """

    source: Address
    target: Address
    namespaces: tuple[str, ...]
    pairs: tuple[Pair, ...]
    problems: tuple[Problem, ...] = ()
    buckets: int = BUCKETS
    examples: int = 20
    entries_per_range: int = ENTRIES_PER_RANGE
    coverage: Coverage = field(default_factory=Coverage)
    max_bytes_per_second: int | None = None

    def limits(self, readers: int) -> JsonObject:
        """The fields of `reading.limits.Limits` for each of so many parallel readers: all may read the same broker."""
        share = self.max_bytes_per_second / readers if self.max_bytes_per_second else None
        return {"window": self.coverage.window, "bytes_per_second": share}

    def address(self, side: Side) -> Address:
        """The cluster on one side."""
        return self.source if side is Side.SOURCE else self.target

    @property
    def entries(self) -> int:
        """Entries to read on both sides; a batch is one entry."""
        return sum(len(pair.source) + len(pair.target) for pair in self.pairs)

    def groups(self, side: Side, pairs: Sequence[int] | None = None) -> list[list[Range]]:
        """What is read on one side, per task; of all pairs, or of those with the numbers `pairs`."""
        numbers = range(len(self.pairs)) if pairs is None else pairs
        ranges = chain.from_iterable(self._cut(number, side) for number in numbers)
        return group(ranges, entries_per_task=self.entries_per_range)

    def _cut(self, number: int, side: Side) -> list[Range]:
        pair = self.pairs[number]
        ranges = (
            compacted_range(pair.bounds(side), pair=number, publish_time=pair.publish_time)
            if pair.compacted
            else cut(
                pair.bounds(side),
                pair=number,
                publish_time=pair.publish_time,
                entries_per_range=self.entries_per_range,
                engine=pair.engine,
            )
        )
        return [replace(each, keyed=True) for each in ranges] if pair.keyed else list(ranges)

    def identity(self) -> bytes:
        """What decides the digests: all of the document but how fast is read and how many differences are named."""
        return replace(self, max_bytes_per_second=None, examples=0).to_bytes()

    def to_bytes(self) -> bytes:
        """As a JSON document."""
        return json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "source": _address_json(self.source),
                "target": _address_json(self.target),
                "namespaces": self.namespaces,
                "pairs": [_pair_json(pair) for pair in self.pairs],
                "problems": [[each.namespace, each.scope, each.different, each.reason] for each in self.problems],
                "buckets": self.buckets,
                "examples": self.examples,
                "entries_per_range": self.entries_per_range,
                "coverage": self.coverage.to_json(),
                "max_bytes_per_second": self.max_bytes_per_second,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; another version's document is `InvalidRequest`."""
        found: JsonObject = json.loads(content)
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The verification request has version {found.get('schema_version')!r}, this job reads "
                f"{SCHEMA_VERSION}: use the job and the package of one release."
            )
        return cls(
            source=Address(**found["source"]),
            target=Address(**found["target"]),
            namespaces=tuple(found["namespaces"]),
            pairs=tuple(_pair_from(each) for each in found["pairs"]),
            problems=tuple(Problem(*each) for each in found["problems"]),
            buckets=int(found["buckets"]),
            examples=int(found["examples"]),
            entries_per_range=int(found["entries_per_range"]),
            coverage=Coverage.from_json(found["coverage"]),
            max_bytes_per_second=found["max_bytes_per_second"],
        )


def _address_json(address: Address) -> JsonObject:
    return {"name": address.name, "admin_url": address.admin_url, "service_url": address.service_url}


def _pair_json(pair: Pair) -> JsonObject:
    return {
        "topic": pair.topic,
        "source": pair.source.to_json(),
        "target": pair.target.to_json(),
        "publish_time": pair.publish_time,
        "notes": pair.notes,
        "compacted": pair.compacted,
        "earlier": pair.earlier,
        "engine": [pair.engine, pair.engine_reason],
        "keyed": pair.keyed,
    }


def _pair_from(found: JsonObject) -> Pair:
    source, target = TopicBounds.from_json(found["source"]), TopicBounds.from_json(found["target"])
    engine, reason = found["engine"]
    return Pair(
        str(found["topic"]),
        source,
        target,
        bool(found["publish_time"]),
        tuple(found["notes"]),
        compacted=bool(found["compacted"]),
        earlier=found["earlier"],
        engine=EngineName(engine),
        engine_reason=str(reason),
        keyed=bool(found["keyed"]),
    )


Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""
