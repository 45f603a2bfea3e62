"""A snapshot of a cluster as values: one class per table (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.partial_reads import Area, Note, Problem
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.versions import version_numbers

MIGRATED_PROPERTY = "migrated"
"""The property with which a broker marks the ledger of a topic that it has redirected."""
UNREAD_RANGES = -1


@dataclass(frozen=True, slots=True)
class ClusterDataState:
    """The data that a cluster stores about itself or a peer, redacted.

    :param failure_domains: name → document.
    :param isolation: name of a namespace isolation policy → document.
    """

    name: str
    data: JsonObject
    failure_domains: JsonObject = field(default_factory=dict)
    isolation: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResourceGroupState:
    """A resource group with its limits."""

    name: str
    limits: JsonObject


@dataclass(frozen=True, slots=True)
class TenantState:
    """A tenant; both lists are sorted."""

    name: str
    admin_roles: tuple[str, ...]
    allowed_clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """A namespace with its policies document, in which local settings are merged."""

    name: str
    policies: JsonObject


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic; a partitioned topic is one row.

    :param partitions: 0 for a topic without partitions.
    :param partition_properties: partition → the properties that it has besides those of the topic; without partitions
        that have none, and without `MIGRATED_PROPERTY`.
    """

    name: str
    partitions: int
    properties: JsonObject
    terminated: bool = False
    partition_properties: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """One version of a topic's schema; `timestamp` in ms."""

    topic: str
    version: int
    type: str
    schema: str
    properties: JsonObject
    timestamp: int


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """A subscription on one topic or partition.

    :param topic: name of the partitioned topic, if it is one; `partition` is the topic that has the cursor.
    :param mark_delete: mark-delete position as `ledger:entry`; valid on this cluster only.
    :param acknowledged_ranges: ranges of individually acknowledged entries behind it; `UNREAD_RANGES` if not read.
    """

    topic: str
    partition: str
    name: str
    mark_delete: str
    replicated: bool
    properties: JsonObject = field(default_factory=dict)
    acknowledged_ranges: int = UNREAD_RANGES


@dataclass(frozen=True, slots=True)
class TopicPolicyState:
    """The policies of one topic in one scope (`local` or `global`); `updated_at` in ms."""

    topic: str
    scope: str
    policies: JsonObject
    updated_at: int


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A live broker: web address, version, redacted effective configuration."""

    address: str
    version: str
    configuration: JsonObject


SYSTEM_TOPIC = "system topic"
DYNAMIC_SETTING = "dynamic setting"
SCALABLE_TOPIC = "scalable topic"


@dataclass(frozen=True, slots=True)
class InventoryState:
    """A resource that a copy does not include, listed so that reports name it.

    :param kind: `client` (`name` is a version, `detail` the numbers of producers, consumers and readers), `function`,
        `source`, `sink`, `package`, `SYSTEM_TOPIC`, `SCALABLE_TOPIC` (`name` is `topic://…`), or `DYNAMIC_SETTING`,
        which belongs to no namespace.
    """

    kind: str
    namespace: str
    name: str
    detail: JsonObject = field(default_factory=dict)


Row = (
    ClusterDataState
    | ResourceGroupState
    | TenantState
    | NamespaceState
    | TopicState
    | SchemaState
    | SubscriptionState
    | TopicPolicyState
    | BrokerState
    | InventoryState
    | Note
)
"""A row of any table."""

TABLES: dict[str, type[Row]] = {
    "clusters": ClusterDataState,
    "resource_groups": ResourceGroupState,
    "tenants": TenantState,
    "namespaces": NamespaceState,
    "topics": TopicState,
    "schemas": SchemaState,
    "subscriptions": SubscriptionState,
    "topic_policies": TopicPolicyState,
    "brokers": BrokerState,
    "inventory": InventoryState,
    "notes": Note,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The cluster, the time (`began` and `ended`, ISO 8601 in UTC) and the options of a snapshot.

    :param known_clusters: names that the cluster accepts in its lists, its own included.
    :param key_id: identifies the key of the fingerprints; two snapshots compare only under the same key.
    :param loaded_topics: the topics with subscriptions were loaded, so the properties of subscriptions were read; else
        these are unknown, and empty in the rows.
    """

    cluster: str
    began: str
    ended: str
    key_id: str
    selection: tuple[str, ...] = ()
    known_clusters: tuple[str, ...] = ()
    calls: int = 0
    loaded_topics: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(SnapshotHeader):
    """The metadata of one cluster, table by table; rows are ordered by namespace, then by name."""

    clusters: tuple[ClusterDataState, ...] = ()
    resource_groups: tuple[ResourceGroupState, ...] = ()
    tenants: tuple[TenantState, ...] = ()
    namespaces: tuple[NamespaceState, ...] = ()
    topics: tuple[TopicState, ...] = ()
    schemas: tuple[SchemaState, ...] = ()
    subscriptions: tuple[SubscriptionState, ...] = ()
    topic_policies: tuple[TopicPolicyState, ...] = ()
    brokers: tuple[BrokerState, ...] = ()
    inventory: tuple[InventoryState, ...] = ()
    notes: tuple[Note, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether everything that our role may read was read."""
        return not self.unreadable

    @property
    def unreadable(self) -> tuple[Note, ...]:
        """The resources that exist and could not be read."""
        return tuple(note for note in self.notes if note.problem == Problem.UNREADABLE)

    @property
    def hidden(self) -> tuple[Note, ...]:
        """The areas that our role may not read."""
        return tuple(note for note in self.notes if note.problem == Problem.HIDDEN)

    def hides(self, area: Area) -> bool:
        """Whether our role may not read this area, so that nothing can be concluded from its absence."""
        return any(note.resource == area for note in self.hidden)

    @property
    def scalable_topics(self) -> tuple[InventoryState, ...]:
        """The scalable topics, which no procedure copies, moves or compares."""
        return tuple(item for item in self.inventory if item.kind == SCALABLE_TOPIC)

    def counts(self) -> dict[str, int]:
        """Rows per table."""
        return {name: len(getattr(self, name)) for name in TABLES}

    def oldest_version(self) -> str:
        """The lowest version of all brokers, such as `4.0.7`; empty without brokers."""
        return min((broker.version for broker in self.brokers), key=version_numbers, default="")
