"""To which clusters namespaces and topics replicate now, by their own lists (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
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
        lists = [set(topic_list_of(snapshot, topic)) for topic in request.topics if str(topic.namespace) == namespace]
        return set.intersection(*lists) if lists else set()
    return set(document_of(snapshot, namespace).get("replication_clusters") or ())


def document_of(snapshot: Snapshot, namespace: str) -> JsonObject:
    """The policies of a namespace; empty if it is missing."""
    return next((state.policies for state in snapshot.namespaces if state.name == namespace), {})


def topic_list_of(snapshot: Snapshot, topic: TopicName) -> list[str]:
    """The list that a topic has itself on this cluster; empty without one."""
    rows = (row for row in snapshot.topic_policies if row.topic == str(topic) and row.scope == Scope.LOCAL)
    return next((list(row.policies.get("replicationClusters") or ()) for row in rows), [])
