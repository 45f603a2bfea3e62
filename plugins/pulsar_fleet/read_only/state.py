"""What a cluster has of sources, shadow topics and their namespace (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A topic that is to be served.

    :param partitions: 0 of a topic without partitions, None of a topic that is missing.
    :param shadow_of: the source of a topic that is a shadow topic itself.
    :param migration: the migration that ended its namespace here, a sentence; nothing that is stored was read then.
    :param linked: its shadow topics.
    :param retention: in effect on the broker that retains least.
    :param bytes_per_second: what is published now.
    :param compacted: it was compacted, at least one partition.
    :param compaction_bytes: the threshold in effect after which it is compacted; 0: it is not by itself.
    :param schemas: its schema versions, oldest first.
    :param schemas_are_numbered: their numbers begin with 0 and have no gap.
    :param stored_bytes: of all partitions.
    :param sent: by broker, the bytes per second that its subscriptions are sent now.
    :param own_policies: the policies that are set on the topic itself, read only for a plan of serving.
    :param policies_unread: why they could not be read; empty if they were, or were not to be read.
    """

    topic: TopicName
    partitions: int | None = None
    shadow_of: str = ""
    terminated: bool = False
    migration: str = ""
    compacted: bool = False
    compaction_bytes: int = 0
    linked: tuple[str, ...] = ()
    retention: Json = None
    bytes_per_second: float = 0.0
    stored_bytes: int = 0
    sent: Mapping[str, float] = field(default_factory=dict)
    namespace: JsonObject = field(default_factory=dict)
    schemas: tuple[JsonObject, ...] = ()
    schemas_are_numbered: bool = True
    own_policies: tuple[str, ...] = ()
    policies_unread: str = ""

    @property
    def can_be_served(self) -> bool:
        """Whether it exists and its statistics were read."""
        return self.partitions is not None and not self.migration


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowState:
    """The topic that serves a source, or is to serve it.

    :param partitions: None of a topic that is missing.
    :param source: of a shadow topic.
    :param retiring: a run has begun to take it away.
    :param retentions: its own, by scope, where they are set.
    :param schemas: its schema versions, oldest first.
    :param owners: topic or partition → the broker that owns it; read only where the namespace has brokers of its own.
    :param bundles: topic or partition → its bundle, of those.
    """

    topic: TopicName
    partitions: int | None = None
    source: str = ""
    retiring: bool = False
    retentions: Mapping[str, Json] = field(default_factory=dict)
    schemas: tuple[JsonObject, ...] = ()
    owners: Mapping[TopicName, str] = field(default_factory=dict)
    bundles: Mapping[TopicName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers of a cluster and its isolation policies.

    :param live: `host:port` of each.
    :param wanted: those that the namespace is to have for itself, as they were written; empty: none of its own.
    :param policies: by name, without the options of their last write; read only where they matter, as the rest.
    :param unable: broker → its load manager, which does not follow isolation policies.
    :param bundles: broker → how many bundles of other namespaces it owns, of those that are wanted.
    """

    live: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    policies: Mapping[str, JsonObject] = field(default_factory=dict)
    unable: Mapping[str, str] = field(default_factory=dict)
    bundles: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was read of one cluster.

    :param document: the policies of the read-only namespace, None if it is missing.
    :param served: source → its namespace's policies, of all shadow topics of that namespace, also of other runs.
    :param without_explicit_lac: brokers that tell readers of an open ledger's last entry only with the next one.
    :param peers: other clusters that are registered here; topics may be replicated to them.
    :param configuration: the settings of a broker.
    :param existing: the topics of the read-only namespace with their partition counts, 0 for a topic without.
    """

    cluster: str
    tenant_exists: bool
    document: JsonObject | None
    sources: tuple[SourceState, ...]
    shadows: Mapping[TopicName, ShadowState]
    brokers: Brokers = Brokers()
    served: Mapping[TopicName, JsonObject] = field(default_factory=dict)
    without_explicit_lac: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    configuration: JsonObject = field(default_factory=dict)
    existing: Mapping[TopicName, int] = field(default_factory=dict)


def retained_minutes_and_megabytes(retention: Json) -> tuple[float, float]:
    """Both limits of a retention; infinite for -1, 0 where nothing is set."""
    limits = ((retention or {}).get(key) or 0 for key in ("retentionTimeInMinutes", "retentionSizeInMB"))
    minutes, megabytes = (float("inf") if limit < 0 else float(limit) for limit in limits)
    return minutes, megabytes
