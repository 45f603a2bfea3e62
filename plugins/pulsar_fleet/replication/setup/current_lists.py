"""To which clusters namespaces and topics replicate now, by the lists in effect (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.effective import clusters_in_effect
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.topology import Link, Topology
from pulsar_fleet.snapshot.model import Snapshot


def new_links(
    namespace: str, snapshots: Mapping[str, Snapshot], topology: Topology, request: Request
) -> Iterator[Link]:
    """The links of a namespace that the topology has and the clusters do not have yet."""
    for link in topology.links():
        current = _current_lists(snapshots[link.source], namespace, request)
        if link.target not in current:
            yield link


def _current_lists(snapshot: Snapshot, namespace: str, request: Request) -> set[str]:
    """The clusters to which all that the run is about replicates already."""
    if request.topics:
        topics = (topic for topic in request.topics if str(topic.namespace) == namespace)
        lists = [set(list_in_effect(snapshot, topic)) for topic in topics]
        return set.intersection(*lists) if lists else set()
    return set(document_of(snapshot, namespace).get("replication_clusters") or ())


def document_of(snapshot: Snapshot, namespace: str) -> JsonObject:
    """The policies of a namespace; empty if it is missing."""
    return next((state.policies for state in snapshot.namespaces if state.name == namespace), {})


def topic_list_of(snapshot: Snapshot, topic: TopicName) -> list[str]:
    """The list that a topic has itself on this cluster; empty without one."""
    return list(_policies_of(snapshot, topic, Scope.LOCAL).get(TOPIC_CLUSTERS) or ())


def list_in_effect(snapshot: Snapshot, topic: TopicName) -> list[str]:
    """The clusters to which a topic replicates now: its own list counts, then its global one, then its namespace's."""
    return clusters_in_effect(
        local=_policies_of(snapshot, topic, Scope.LOCAL),
        shared=_policies_of(snapshot, topic, Scope.GLOBAL),
        namespace=document_of(snapshot, str(topic.namespace)),
        own=snapshot.cluster,
    )


def topics_with_lists(snapshot: Snapshot, namespaces: Collection[str]) -> list[TopicName]:
    """The topics of these namespaces for which the list of the namespace does not count."""
    names = {row.topic for row in snapshot.topic_policies if row.policies.get(TOPIC_CLUSTERS)}
    return [topic for topic in map(TopicName.parse, sorted(names)) if str(topic.namespace) in namespaces]


def topics_kept_local(snapshot: Snapshot, namespaces: Collection[str], request: Request) -> list[TopicName]:
    """The topics that replicate to no cluster by a list of their own, although they are in namespaces of the run."""
    listed = [] if request.topics else topics_with_lists(snapshot, namespaces)
    return [topic for topic in listed if list_in_effect(snapshot, topic) == [snapshot.cluster]]


def _policies_of(snapshot: Snapshot, topic: TopicName, scope: Scope) -> JsonObject:
    rows = (row for row in snapshot.topic_policies if row.topic == str(topic) and row.scope == scope)
    return next((row.policies for row in rows), {})
