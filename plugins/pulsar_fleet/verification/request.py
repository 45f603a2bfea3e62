"""The verification request, with frozen bounds: the document that a Spark job reads (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
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

FOLDER = "verification"
"""The folder of a run's verification documents; a run in several batches has a folder in it for each batch."""


class Mapping(StrEnum):
    """How entries of the target correspond to entries of the source."""

    AUTO = "auto"
    """`replicated` if the namespace replicates to the target or a topic's first entry has a source position."""
    REPLICATED = "replicated"
    """The target's entries have source positions; messages published directly on the target are left out."""
    WHOLE = "whole"
    """Everything is compared with everything: producers wrote both topics."""


@dataclass(frozen=True, slots=True)
class Address:
    """The addresses of a cluster; credentials are passed separately, in the environment."""

    name: str
    admin_url: str
    service_url: str

    @classmethod
    def of(cls, connection: ClusterConnection, name: str) -> Self:
        """The addresses of a connection, with the cluster name that verdicts use."""
        return cls(name, connection.admin_url, connection.require_service_url())


@dataclass(frozen=True, slots=True)
class Pair:
    """One topic on both clusters, each between its bounds.

    :param publish_time: whether publish times must be equal too.
    :param notes: notes for a reader of the verdict, for example that retention has removed the beginning.
    :param compacted: only the latest value of each key is compared.
    :param earlier: the proof of the part before the bounds, by the same engine, which the new proof continues; see
        `incremental.earlier_proofs`.
    :param engine: the engine for both clusters; `engine_reason` says why, as the end of a sentence.
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
        """The bounds on one cluster."""
        return self.source if side is Side.SOURCE else self.target


@dataclass(frozen=True, slots=True)
class Problem:
    """A verdict that was decided without reading a message.

    :param different: True if it proves a difference, False if it only prevents a proof.
    :param scope: a topic, or a namespace if the reason applies to all of it.
    """

    namespace: str
    scope: str
    different: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Namespaces to verify between two clusters.

    :param examples: how many differences are described for each topic.
    :param max_bytes_per_second: the limit for each broker, over all tasks; None means no limit.
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
        """The fields of `throttle.Limits` for each of `readers` parallel readers; all may read from one broker."""
        share = self.max_bytes_per_second / readers if self.max_bytes_per_second else None
        return {"window": self.coverage.window, "bytes_per_second": share}

    def address(self, side: Side) -> Address:
        """The address of one cluster."""
        return self.source if side is Side.SOURCE else self.target

    @property
    def entries(self) -> int:
        """Entries to read on both clusters; a batch is one entry."""
        return sum(len(pair.source) + len(pair.target) for pair in self.pairs)

    def groups(self, side: Side, pairs: Sequence[int] | None = None) -> list[list[Range]]:
        """The ranges of one cluster for each task; of all pairs, or of the pairs with the numbers `pairs`."""
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
        return [replace(entry_range, keyed=True) for entry_range in ranges] if pair.keyed else list(ranges)

    def identity(self) -> bytes:
        """The part of the document that affects digests: all except the rate limit and the number of examples."""
        return replace(self, max_bytes_per_second=None, examples=0).to_bytes()

    def to_bytes(self) -> bytes:
        """As a JSON document."""
        return json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "source": asdict(self.source),
                "target": asdict(self.target),
                "namespaces": self.namespaces,
                "pairs": [_pair_json(pair) for pair in self.pairs],
                "problems": [astuple(problem) for problem in self.problems],
                "buckets": self.buckets,
                "examples": self.examples,
                "entries_per_range": self.entries_per_range,
                "coverage": self.coverage.to_json(),
                "max_bytes_per_second": self.max_bytes_per_second,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; `InvalidRequest` for a document of another version."""
        document: JsonObject = json.loads(content)
        if document.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The verification request has version {document.get('schema_version')!r}, this job reads version "
                f"{SCHEMA_VERSION}: use the job and the package of the same release."
            )
        return cls(
            source=Address(**document["source"]),
            target=Address(**document["target"]),
            namespaces=tuple(document["namespaces"]),
            pairs=tuple(_pair_from(item) for item in document["pairs"]),
            problems=tuple(Problem(*item) for item in document["problems"]),
            buckets=int(document["buckets"]),
            examples=int(document["examples"]),
            entries_per_range=int(document["entries_per_range"]),
            coverage=Coverage.from_json(document["coverage"]),
            max_bytes_per_second=document["max_bytes_per_second"],
        )


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


def _pair_from(document: JsonObject) -> Pair:
    source, target = TopicBounds.from_json(document["source"]), TopicBounds.from_json(document["target"])
    engine, reason = document["engine"]
    return Pair(
        str(document["topic"]),
        source,
        target,
        bool(document["publish_time"]),
        tuple(document["notes"]),
        compacted=bool(document["compacted"]),
        earlier=document["earlier"],
        engine=EngineName(engine),
        engine_reason=str(reason),
        keyed=bool(document["keyed"]),
    )


Progress = Callable[[int, int], None]
"""Takes the finished amount and the total amount."""
