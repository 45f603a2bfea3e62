"""What is replicated between which clusters now, by the lists in effect, and what a request adds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.effective import clusters_in_effect
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.replication.clusters import Clusters
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.topology import Link, Topology
from pulsar_fleet.snapshot.cluster_reader import list_namespaces, tenant_names
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.resources import lists_of_topics
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


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


_AT_ONCE = 8
Sent = Mapping[NamespaceName, tuple[TopicName, ...]]
"""Namespace → its topics that a list of their own sends, where its own list does not; empty: all its topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLists:
    """The lists that one cluster has stored.

    :param namespaces: namespace → the clusters of its list.
    :param topics: topic → the clusters of the list in effect for it, if it has one itself.
    :param unread: namespace → why the policies of its topics could not be read: what they send is unknown.
    """

    namespaces: Mapping[NamespaceName, frozenset[str]]
    topics: Mapping[TopicName, frozenset[str]]
    unread: Mapping[NamespaceName, str]

    def sent_to(self, cluster: str) -> Sent:
        """What is replicated to another cluster."""
        sent = {name: tuple[TopicName, ...]() for name, listed in self.namespaces.items() if cluster in listed}
        for topic in sorted(topic for topic, listed in self.topics.items() if cluster in listed):
            if topic.namespace not in sent or sent[topic.namespace]:
                sent[topic.namespace] = (*sent.get(topic.namespace, ()), topic)
        return sent

    def unknown(self, cluster: str) -> tuple[str, ...]:
        """Of which namespaces it is unknown what is replicated to another cluster, as texts."""
        return tuple(
            f"{name}: {reason}" for name, reason in self.unread.items() if cluster not in self.namespaces[name]
        )


async def replicated_namespaces(clusters: Clusters, selection: Selection) -> tuple[dict[Link, Sent], tuple[str, ...]]:
    """What each cluster replicates to each other one, only between these; and what could not be read, as texts.

    Calls: one for each tenant and namespace of each cluster; see `read_lists`.
    """
    links: dict[Link, Sent] = {}
    unread: list[str] = []
    for own, admin in clusters.admins.items():
        tenants = await list_namespaces(admin, await tenant_names(admin, selection))
        names = [name for namespaces in tenants.values() for name in namespaces or () if selection.has(name)]
        peers = sorted({*clusters.admins} - {own})
        lists = await read_lists(admin, names, peers)
        links |= {Link(own, peer): sent for peer in peers if (sent := lists.sent_to(peer))}
        unread += [f"{own}: {text}" for text in dict.fromkeys(text for peer in peers for text in lists.unknown(peer))]
    return dict(sorted(links.items())), tuple(unread)


async def read_lists(admin: AdminClient, names: Sequence[NamespaceName], peers: Collection[str]) -> StoredLists:
    """The lists of namespaces, and those of topics where the list of their namespace does not have every peer.

    Calls: one for each namespace, and one pass over `__change_events` where the list does not have every peer: a
    topic keeps and uses a list that its tenant does not allow any more (observed, 4.2.4).

    :param peers: the clusters that are asked about.
    """
    documents = dict(zip(names, await asyncio.gather(*map(admin.namespace, names)), strict=True))
    lists = {
        name: frozenset((document or {}).get("replication_clusters") or ()) for name, document in documents.items()
    }
    topics: dict[TopicName, frozenset[str]] = {}
    unread: dict[NamespaceName, str] = {}
    slots = asyncio.Semaphore(_AT_ONCE)

    async def read(name: NamespaceName) -> None:
        async with slots:
            try:
                topics.update(lists_of_topics(await reader.read(name)))
            except FleetError as error:
                unread[name] = str(error)

    asked = [name for name in names if documents[name] is not None and not {*peers} <= lists[name]]
    async with TopicPolicyReader(admin, None) as reader:
        await asyncio.gather(*map(read, asked))
    return StoredLists(namespaces=lists, topics=topics, unread=unread)
