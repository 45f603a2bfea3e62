"""The resources of each cluster of a fleet, in fields that all clusters share (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.admin.partial_reads import PARTITIONED_TOPICS_OF, SCHEMAS_OF, TOPIC_POLICIES_OF
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.fields import (
    Values,
    namespace_values,
    partitioned_values,
    tenant_values,
    topic_values,
)
from pulsar_fleet.policy_sync.merge.provenance import Provenance
from pulsar_fleet.snapshot.model import SchemaState, Snapshot

Item = tuple[Resource, str]
"""A resource: a tenant, a namespace, a partitioned topic, or the policies of a topic."""


class Identity(StrEnum):
    """What is known of a resource that lacks values."""

    SAME = "the same resource"
    RECREATED = "created again"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The resources of one cluster.

    :param provenance: when each value was written, if known.
    :param unread: tenants, namespaces, topics and topic policies that exist and could not be read.
    :param topics: namespace → its topics; only of the namespaces whose topics were listed.
    :param shadows: the partitioned topics that are shadow topics.
    :param identity: of the resources that lack values of the merge base; the others count as the same.
    """

    cluster: str
    items: Mapping[Item, Values]
    provenance: Mapping[Item, Mapping[str, Provenance]] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    topics: Mapping[str, Collection[str]] = field(default_factory=dict)
    shadows: frozenset[str] = frozenset()
    identity: Mapping[Item, Identity] = field(default_factory=dict)

    def has_read(self, item: Item) -> bool:
        """Whether the resource could be read: an unread resource is never compared."""
        tenant, namespace = tenant_and_namespace(item)
        names = {tenant, namespace} if namespace else {tenant}
        if item[0] is Resource.TOPIC_POLICY:
            names.add(f"{TOPIC_POLICIES_OF}{namespace}")
        elif item[0] is Resource.TOPIC:
            names |= {item[1], f"{SCHEMAS_OF}{item[1]}", f"{PARTITIONED_TOPICS_OF}{namespace}"}
        return not names & self.unread

    def values(self, item: Item) -> Values | None:
        """The fields of a resource; None if it does not exist. A topic that exists may have no policy."""
        if item not in self.items and item[0] is Resource.TOPIC_POLICY and self._has_topic(item[1]):
            return {}
        return self.items.get(item)

    def is_unpartitioned(self, item: Item) -> bool:
        """Whether the cluster has a partitioned topic of other clusters without partitions, among the listed topics."""
        is_other = item not in self.items and item[1] not in self.shadows
        return item[0] is Resource.TOPIC and is_other and self._has_topic(item[1])

    def _has_topic(self, name: str) -> bool:
        return name in self.topics.get(str(TopicName.parse(name).namespace), ())


def tenant_and_namespace(item: Item) -> tuple[str, str]:
    """Tenant and namespace of a resource; the namespace of a tenant is empty."""
    kind, name = item
    if kind is Resource.TENANT:
        return name, ""
    namespace = NamespaceName.parse(name) if kind is Resource.NAMESPACE else TopicName.parse(name).namespace
    return namespace.tenant, str(namespace)


def is_selected(item: Item, selection: Selection) -> bool:
    """Whether the selection includes a resource."""
    tenant, namespace = tenant_and_namespace(item)
    return selection.has(NamespaceName.parse(namespace)) if namespace else selection.has_tenant(tenant)


def items_of(snapshot: Snapshot, fleet: Collection[str]) -> dict[Item, Values]:
    """The resources of a snapshot, in fields that mean the same on every cluster of the fleet."""
    return dict(_items(snapshot, fleet))


def topic_documents(snapshot: Snapshot) -> dict[str, dict[str, JsonObject]]:
    """Topic → scope → document."""
    documents: dict[str, dict[str, JsonObject]] = {}
    for state in snapshot.topic_policies:
        documents.setdefault(state.topic, {})[state.scope] = state.policies
    return documents


def _items(snapshot: Snapshot, fleet: Collection[str]) -> Iterator[tuple[Item, Values]]:
    own = snapshot.cluster
    for tenant in snapshot.tenants:
        yield (Resource.TENANT, tenant.name), tenant_values(tenant, fleet, own)
    for namespace in snapshot.namespaces:
        yield (Resource.NAMESPACE, namespace.name), namespace_values(namespace.policies, fleet, own)
    schemas: dict[str, list[SchemaState]] = {}
    for schema in snapshot.schemas:
        schemas.setdefault(schema.topic, []).append(schema)
    for state in snapshot.topics:
        if state.partitions and SHADOW_SOURCE not in state.properties:
            yield (Resource.TOPIC, state.name), partitioned_values(state, schemas.get(state.name, ()))
    for topic, documents in topic_documents(snapshot).items():
        yield (Resource.TOPIC_POLICY, topic), topic_values(documents, fleet, own)
