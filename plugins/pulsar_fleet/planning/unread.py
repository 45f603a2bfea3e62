"""What could not be read on a cluster is neither compared nor changed; everything else is (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.cluster.admin.partial_reads import (
    NAMESPACES_OF,
    SCALABLE_TOPICS_OF,
    SCHEMAS_OF,
    SUBSCRIPTION_PROPERTIES_OF,
    SUBSCRIPTIONS_OF,
    TOPIC_POLICIES_OF,
    Note,
)
from pulsar_fleet.cluster.names import TopicName, with_parent
from pulsar_fleet.planning.diff_entry import Difference, Resource
from pulsar_fleet.planning.plan import LeftAlone
from pulsar_fleet.snapshot.model import Snapshot

_PARTS = {
    SCHEMAS_OF: Resource.SCHEMA,
    SUBSCRIPTIONS_OF: Resource.SUBSCRIPTION,
    SUBSCRIPTION_PROPERTIES_OF: Resource.SUBSCRIPTION,
    TOPIC_POLICIES_OF: Resource.TOPIC_POLICY,
    SCALABLE_TOPICS_OF: Resource.SCALABLE_TOPIC,
    NAMESPACES_OF: Resource.NAMESPACE,
    "cluster ": Resource.CLUSTER,
    "failureDomains of ": Resource.FAILURE_DOMAIN,
    "namespaceIsolationPolicies of ": Resource.ISOLATION,
    "resource group": Resource.RESOURCE_GROUP,
}
"""How the note about a part of a resource begins → what is unknown."""
_IN_TOPIC = {
    Resource.SCHEMA: (SCHEMAS_OF,),
    Resource.SUBSCRIPTION: (SUBSCRIPTIONS_OF, SUBSCRIPTION_PROPERTIES_OF),
}


ALL_PROPERTIES = f"{SUBSCRIPTION_PROPERTIES_OF}every topic"


class Unread:
    """The unreadable resources of a source and a target: unknown on one side is unknown for the pair.

    :param subscriptions: subscriptions are compared.
    """

    def __init__(self, source: Snapshot, target: Snapshot, *, subscriptions: bool = True) -> None:
        self._clusters = (source.cluster, target.cluster)
        self._unloaded = [side.cluster for side in (source, target) if subscriptions and not side.loaded_topics]
        self._notes = {
            note.resource: (snapshot.cluster, note) for snapshot in (source, target) for note in snapshot.unreadable
        }

    def hides(self, difference: Difference) -> bool:
        """Whether a difference is in a resource that was not read on one of the clusters."""
        return bool(self._notes) and any(name in self._notes for name in self._covering(difference))

    def has_topic(self, topic: TopicName) -> bool:
        """Whether a topic exists and could not be read."""
        return str(topic) in self._notes

    def left_alone(self) -> Iterator[LeftAlone]:
        """One entry for each resource that a plan would have compared."""
        for cluster, note in self._notes.values():
            if (resource := _resource(note)) is not None:
                yield LeftAlone(resource, note.resource, "", f"it could not be read on {cluster}")
        if self._unloaded:
            snapshots = f"the snapshot of {' and '.join(self._unloaded)}"
            yield LeftAlone(Resource.SUBSCRIPTION, ALL_PROPERTIES, "", f"{snapshots} was taken without them")

    def without_unread_properties(self, snapshot: Snapshot) -> Snapshot:
        """One of the two, without the properties of subscriptions unless both have them."""
        if not self._unloaded:
            return snapshot
        return replace(snapshot, subscriptions=tuple(replace(row, properties={}) for row in snapshot.subscriptions))

    def _covering(self, difference: Difference) -> Iterator[str]:
        """The names under which a note would report the resource of a difference, or what contains it."""
        resource, name = difference.resource, difference.name
        match resource:
            case Resource.CLUSTER:
                yield f"cluster {name}"
            case Resource.RESOURCE_GROUP:
                yield from ("resource groups", f"resource group {name}")
            case Resource.FAILURE_DOMAIN | Resource.ISOLATION:
                part = "failureDomains" if resource is Resource.FAILURE_DOMAIN else "namespaceIsolationPolicies"
                yield from (text for own in self._clusters for text in (f"cluster {own}", f"{part} of {own}"))
            case Resource.TENANT:
                yield name
            case Resource.NAMESPACE | Resource.POLICY:
                yield from _of_namespace(name)
            case _:
                namespace = str(TopicName.parse(name).namespace)
                for topic in with_parent(name):
                    yield from (topic, *(f"{part}{topic}" for part in _IN_TOPIC.get(resource, ())))
                if resource is Resource.TOPIC_POLICY:
                    yield f"{TOPIC_POLICIES_OF}{namespace}"
                yield from _of_namespace(namespace)


def _of_namespace(name: str) -> tuple[str, ...]:
    tenant = name.partition("/")[0]
    return name, tenant, f"{NAMESPACES_OF}{tenant}"


def _resource(note: Note) -> Resource | None:
    """What a note makes unknown; None for what no plan compares, such as brokers and functions."""
    name = note.resource
    for prefix, resource in _PARTS.items():
        if name.startswith(prefix):
            return resource
    if "://" in name:
        return Resource.TOPIC
    if " " in name:
        return None
    return Resource.NAMESPACE if "/" in name else Resource.TENANT
