"""The verification request, with frozen bounds: the document that a Spark job reads (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Protocol, Self, TypeVar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import ArrayDocument, Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.digests import BUCKETS
from pulsar_fleet.messages.ranges import ENTRIES_PER_RANGE, EngineName, Range, TopicBounds, compacted_range, cut, group
from pulsar_fleet.verification.coverage import Coverage

FOLDER = "verification"
"""The folder of a run's verification documents; a run in several batches has a folder in it for each batch."""


class EntryMapping(StrEnum):
    """How entries of the target correspond to entries of the source."""

    AUTO = "auto"
    """`replicated` if the namespace replicates to the target or a topic's first entry has a source position."""
    REPLICATED = "replicated"
    """The target's entries have source positions; messages published directly on the target are left out."""
    COPIES = "copies"
    """As `replicated`, while producers write to the target too: everything on it that no replicator wrote is left out,
    wherever it lies."""
    MESH = "mesh"
    """Clusters that replicate to each other: what producers wrote to the source is compared with its copies on the
    target; what came from other clusters is left out on both."""
    WHOLE = "whole"
    """Everything is compared with everything: producers wrote both topics."""


class Order(StrEnum):
    """Which order of messages a copy has to keep."""

    PRODUCER_AND_KEY = "producer_and_key"
    """That of each producer and of each key, which is what Pulsar promises."""
    TOTAL = "total"
    """That of all messages of a topic: how the messages of different producers lie between each other counts too."""


def require_comparable(mapping: EntryMapping, *, subscriptions: bool) -> None:
    """Refuse to compare subscriptions in a mesh: their backlog has what other clusters published too."""
    if mapping is EntryMapping.MESH and subscriptions:
        raise InvalidRequest("Mapping 'mesh' compares messages only: turn 'subscriptions' off.")


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
class ChosenEngine(ArrayDocument):
    """The engine for a pair of topics; `reason` says why, as the end of a sentence."""

    name: EngineName = EngineName.MESSAGE
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """One topic on both clusters, each between its bounds; a compacted topic has a second pair, for its latest values.

    :param publish_time: whether publish times must be equal too.
    :param notes: notes for a reader of the verdict, for example that retention has removed the beginning.
    :param compacted: only the latest value of each key is compared.
    :param earlier: the proof of the part before the bounds, by the same engine, which the new proof continues; see
        `incremental.earlier_proofs`.
    :param engine: the engine for both clusters.
    :param keyed: messages are hashed with a key.
    :param source_origin: what is compared of the source, see `ranges.is_from`; `target_origin` of the target.
    """

    topic: str
    source: TopicBounds
    target: TopicBounds
    publish_time: bool = False
    notes: tuple[str, ...] = ()
    compacted: bool = False
    earlier: JsonObject | None = None
    engine: ChosenEngine = field(default_factory=ChosenEngine)
    keyed: bool = False
    source_origin: str = ""
    target_origin: str = ""

    @property
    def key(self) -> tuple[str, bool]:
        """What identifies it in a request: the topic, and whether its latest values are compared and not its log."""
        return self.topic, self.compacted

    def origin(self, side: Side) -> str:
        """What is compared of one cluster."""
        return self.source_origin if side is Side.SOURCE else self.target_origin

    def bounds(self, side: Side) -> TopicBounds:
        """The bounds on one cluster."""
        return self.source if side is Side.SOURCE else self.target


class Part(Protocol):
    """What concerns the log of a topic, or its latest values."""

    @property
    def key(self) -> tuple[str, bool]:
        """The topic, and whether it concerns its latest values."""


PartT = TypeVar("PartT", bound=Part)


def logs_of(parts: Iterable[PartT]) -> tuple[PartT, ...]:
    """One part for each topic: of its log, or of its latest values where its log is not compared."""
    by_topic: dict[str, PartT] = {}
    for part in parts:
        topic, compacted = part.key
        if not compacted or topic not in by_topic:
            by_topic[topic] = part
    return tuple(by_topic.values())


@dataclass(frozen=True, slots=True)
class Problem(ArrayDocument):
    """A verdict that was decided without reading a message.

    :param different: True if it proves a difference, False if it only prevents a proof.
    :param scope: a topic, or a namespace if the reason applies to all of it.
    """

    namespace: str
    scope: str
    different: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest(Document):
    """Namespaces to verify between two clusters.

    :param examples: how many differences are described for each topic.
    :param max_bytes_per_second: the limit for each broker, over all tasks; None means no limit.
    :param order: the order that the copies have to keep.
    """

    SCHEMA_VERSION = 5
    OTHER_VERSION = "use the job and the package of the same release"

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
    order: Order = Order.PRODUCER_AND_KEY

    def limits(self, readers: int) -> JsonObject:
        """The fields of `throttle.Limits` for each of `readers` parallel readers; all may read from one broker."""
        share = self.max_bytes_per_second / readers if self.max_bytes_per_second else None
        return {"window": self.coverage.window, "bytes_per_second": share}

    def address(self, side: Side) -> Address:
        """The address of one cluster."""
        return self.source if side is Side.SOURCE else self.target

    def without(self, topics: Collection[str]) -> VerifyRequest:
        """The same without these partitions."""
        return replace(
            self,
            pairs=tuple(pair for pair in self.pairs if pair.topic not in topics),
            problems=tuple(problem for problem in self.problems if problem.scope not in topics),
        )

    @property
    def logs(self) -> tuple[Pair, ...]:
        """One pair for each topic, see `logs_of`."""
        return logs_of(self.pairs)

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
                engine=pair.engine.name,
            )
        )
        return [replace(entry_range, keyed=pair.keyed, origin=pair.origin(side)) for entry_range in ranges]

    def identity(self) -> bytes:
        """The part of the document that affects digests: all except the rate limit and the number of examples."""
        return replace(self, max_bytes_per_second=None, examples=0).to_bytes()


Progress = Callable[[int, int], None]
"""Takes the finished amount and the total amount."""
