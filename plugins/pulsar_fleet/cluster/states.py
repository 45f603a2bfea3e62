"""What a cluster held at a time, as values: one class per table of a snapshot (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import SYSTEM_NAMESPACES, NamespaceName


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


class Problem(StrEnum):
    """Why something is not in a snapshot."""

    VANISHED = "vanished"
    """It was listed, and gone when it was read: nothing is wrong."""
    UNREADABLE = "unreadable"
    """It is there and could not be read: the snapshot is incomplete."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was listed and is not in the snapshot."""

    resource: str
    problem: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tenants and namespaces are meant; empty means all but the brokers' own.

    `public/default`, which every cluster makes for itself, only counts when it is named or holds a topic.
    """

    tenants: frozenset[str] = frozenset()
    namespaces: frozenset[NamespaceName] = frozenset()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Read names: `tenant` for all of a tenant, `tenant/namespace` for one namespace."""
        given = tuple(texts)
        return cls(
            tenants=frozenset(text for text in given if "/" not in text),
            namespaces=frozenset(NamespaceName.parse(text) for text in given if "/" in text),
        )

    @property
    def everything(self) -> bool:
        """Whether nothing was named."""
        return not self.tenants and not self.namespaces

    def texts(self) -> tuple[str, ...]:
        """What `parse` reads."""
        return (*sorted(self.tenants), *sorted(map(str, self.namespaces)))

    def has_tenant(self, name: str) -> bool:
        """Whether anything of this tenant is meant."""
        return self.everything or name in self.tenants or any(one.tenant == name for one in self.namespaces)

    def has(self, namespace: NamespaceName) -> bool:
        """Whether this namespace is meant."""
        if str(namespace) in SYSTEM_NAMESPACES:
            return False
        return self.everything or namespace.tenant in self.tenants or namespace in self.namespaces

    def names(self, namespace: NamespaceName) -> bool:
        """Whether the namespace, or its tenant, was named by the user."""
        return not self.everything and self.has(namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one cluster held between two times (`began` and `ended`, ISO 8601 in UTC).

    :param known_clusters: the clusters that this one can name in a list, its own among them.
    :param key_id: which key made the fingerprints of secrets; two snapshots compare only under the same key.
    """

    cluster: str
    began: str
    ended: str
    key_id: str
    selection: tuple[str, ...] = ()
    known_clusters: tuple[str, ...] = ()
    resource_groups: tuple[str, ...] = ()
    calls: int = 0
    tenants: tuple[TenantState, ...] = ()
    namespaces: tuple[NamespaceState, ...] = ()
    topics: tuple[TopicState, ...] = ()
    schemas: tuple[SchemaState, ...] = ()
    subscriptions: tuple[SubscriptionState, ...] = ()
    topic_policies: tuple[TopicPolicyState, ...] = ()
    brokers: tuple[BrokerState, ...] = ()
    notes: tuple[Note, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether everything that was there could be read."""
        return not self.unreadable

    @property
    def unreadable(self) -> tuple[Note, ...]:
        """What is there and could not be read."""
        return tuple(note for note in self.notes if note.problem == Problem.UNREADABLE)

    def counts(self) -> dict[str, int]:
        """Rows per table."""
        return {name: len(getattr(self, name)) for name in TABLES}

    def oldest_version(self) -> str:
        """The lowest version that a broker runs, such as `4.0.7`; empty without brokers."""
        return min((broker.version for broker in self.brokers), key=version_numbers, default="")


TABLES: dict[str, type] = {
    "tenants": TenantState,
    "namespaces": NamespaceState,
    "topics": TopicState,
    "schemas": SchemaState,
    "subscriptions": SubscriptionState,
    "topic_policies": TopicPolicyState,
    "brokers": BrokerState,
    "notes": Note,
}


def version_numbers(version: str) -> tuple[int, ...]:
    """`4.2.4-SNAPSHOT` → (4, 2, 4), for comparing."""
    numbers = (part for part in version.partition("-")[0].split("."))
    return tuple(int(part) for part in numbers if part.isdigit())
