"""What each cluster of a fleet holds, resource by resource, in terms that all share (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.fields import Values, namespace_values, tenant_values, topic_values
from pulsar_fleet.policy_sync.merge.provenance import Seen
from pulsar_fleet.snapshot.model import Snapshot

Item = tuple[Resource, str]
"""A resource: a tenant, a namespace, or a topic with its policies."""

POLICIES_OF = "topic policies of "
"""Begins the name of what could not be read where it is the policies of a namespace's topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one cluster holds.

    :param seen: when each value was written, as far as that is known.
    :param unread: tenants, namespaces and policies of topics that are there and could not be read.
    :param topics: namespace → its topics; only of those that were asked for.
    """

    cluster: str
    items: Mapping[Item, Values]
    seen: Mapping[Item, Mapping[str, Seen]] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    topics: Mapping[str, Collection[str]] = field(default_factory=dict)

    def knows(self, item: Item) -> bool:
        """Whether it is known what the cluster holds of the resource: nothing is concluded from what is not."""
        tenant, namespace = place(item)
        hidden = {tenant, namespace} if namespace else {tenant}
        if item[0] is Resource.TOPIC_POLICY:
            hidden.add(f"{POLICIES_OF}{namespace}")
        return not hidden & self.unread

    def values(self, item: Item) -> Values | None:
        """The fields of a resource; None where it is not there. A topic that is there may have no policy."""
        if item not in self.items and item[0] is Resource.TOPIC_POLICY and self._has_topic(item[1]):
            return {}
        return self.items.get(item)

    def _has_topic(self, name: str) -> bool:
        return name in self.topics.get(str(TopicName.parse(name).namespace), ())


def place(item: Item) -> tuple[str, str]:
    """Tenant and namespace of a resource; a tenant lies in no namespace."""
    kind, name = item
    if kind is Resource.TENANT:
        return name, ""
    namespace = NamespaceName.parse(name) if kind is Resource.NAMESPACE else TopicName.parse(name).namespace
    return namespace.tenant, str(namespace)


def is_selected(item: Item, selection: Selection) -> bool:
    """Whether a resource lies in what is meant."""
    tenant, namespace = place(item)
    return selection.has(NamespaceName.parse(namespace)) if namespace else selection.has_tenant(tenant)


def items_of(snapshot: Snapshot, fleet: Collection[str]) -> dict[Item, Values]:
    """The resources of a snapshot, in fields that mean the same on every cluster of the fleet."""
    return dict(_items(snapshot, fleet))


def topic_documents(snapshot: Snapshot) -> dict[str, dict[str, JsonObject]]:
    """Topic → scope → document."""
    found: dict[str, dict[str, JsonObject]] = {}
    for one in snapshot.topic_policies:
        found.setdefault(one.topic, {})[one.scope] = one.policies
    return found


def _items(snapshot: Snapshot, fleet: Collection[str]) -> Iterator[tuple[Item, Values]]:
    own = snapshot.cluster
    for tenant in snapshot.tenants:
        yield (Resource.TENANT, tenant.name), tenant_values(tenant, fleet, own)
    for namespace in snapshot.namespaces:
        yield (Resource.NAMESPACE, namespace.name), namespace_values(namespace.policies, fleet, own)
    for topic, documents in topic_documents(snapshot).items():
        yield (Resource.TOPIC_POLICY, topic), topic_values(documents, fleet, own)
