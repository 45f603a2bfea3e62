"""What a cluster held at a time, as values: one class per table of a snapshot (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.read_problems import Area, Note, Problem
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.versions import version_numbers


@dataclass(frozen=True, slots=True)
class ClusterDataState:
    """What a cluster knows about one cluster (itself or a peer): its addresses, without secrets.

    :param failure_domains: name → document, as the cluster stores them.
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
    """A tenant; both lists in order."""

    name: str
    admin_roles: tuple[str, ...]
    allowed_clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """A namespace with its policies document, the settings that lie outside of it merged in."""

    name: str
    policies: JsonObject


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic by its own name, not by its partitions.

    :param partitions: 0 for a plain topic.
    """

    name: str
    partitions: int
    properties: JsonObject
    terminated: bool = False


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
    """A cursor of one topic or partition.

    :param topic: the topic's own name; `partition` is the topic that holds the cursor.
    :param mark_delete: `ledger:entry` up to which everything is acknowledged; of this cluster only.
    """

    topic: str
    partition: str
    name: str
    mark_delete: str
    replicated: bool
    properties: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPolicyState:
    """The policies of one topic in one scope (`local` or `global`); `updated_at` in ms."""

    topic: str
    scope: str
    policies: JsonObject
    updated_at: int


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A live broker: web address, version, effective configuration without secrets."""

    address: str
    version: str
    configuration: JsonObject


SYSTEM_TOPIC = "system topic"


@dataclass(frozen=True, slots=True)
class InventoryState:
    """Something whose content the copy does not carry, counted so that nobody believes it was.

    :param kind: `client` (a version string), `function`, `source`, `sink`, `package` or `SYSTEM_TOPIC`.
    :param namespace: where it lives.
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
"""One row of one of the tables."""

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
class SnapshotHead:
    """What a snapshot is of: one cluster, between two times (`began` and `ended`, ISO 8601 in UTC).

    :param known_clusters: the clusters that this one can name in a list, its own among them.
    :param key_id: which key made the fingerprints of secrets; two snapshots compare only under the same key.
    :param loaded_topics: topics were loaded, so the properties of subscriptions are known; else they are empty.
    """

    cluster: str
    began: str
    ended: str
    key_id: str
    selection: tuple[str, ...] = ()
    known_clusters: tuple[str, ...] = ()
    calls: int = 0
    loaded_topics: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(SnapshotHead):
    """What one cluster held, table by table; rows lie in the order of their namespaces, and of names within these."""

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
        """Whether everything that our role may see could be read."""
        return not self.unreadable

    @property
    def unreadable(self) -> tuple[Note, ...]:
        """What is there and could not be read."""
        return tuple(note for note in self.notes if note.problem == Problem.UNREADABLE)

    @property
    def hidden(self) -> tuple[Note, ...]:
        """What our role may not see."""
        return tuple(note for note in self.notes if note.problem == Problem.HIDDEN)

    def hides(self, area: Area) -> bool:
        """Whether our role may not see this, so that nothing follows from its absence."""
        return any(note.resource == area for note in self.hidden)

    def counts(self) -> dict[str, int]:
        """Rows per table."""
        return {name: len(getattr(self, name)) for name in TABLES}

    def oldest_version(self) -> str:
        """The lowest version that a broker runs, such as `4.0.7`; empty without brokers."""
        return min((broker.version for broker in self.brokers), key=version_numbers, default="")
