"""Read everything about the replicators of a fleet (client)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.replication.doctor.facts import ClusterFacts, FleetFacts, NamespaceFacts, Unread
from pulsar_fleet.replication.doctor.reading.clusters import locate_peers, read_cluster, try_credentials
from pulsar_fleet.replication.doctor.reading.namespaces import (
    list_selected,
    read_namespaces,
    read_topics,
    with_affinity,
)
from pulsar_fleet.replication.doctor.reading.replicators import read_replicators
from pulsar_fleet.replication.doctor.reading.targets import read_targets
from pulsar_fleet.replication.doctor.replicators import ReplicatorFacts
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


async def read_fleet(fleet: Fleet, connections: Sequence[ClusterConnection], request: Request) -> FleetFacts:
    """The facts about the selected namespaces on all clusters that answer; no message is read.

    **Loads every topic of a namespace that replicates**, on the clusters that send, because the broker has statistics
    of loaded topics only; and an unloaded topic replicates nothing.

    Calls for each cluster: 7, one for each peer, tenant and namespace; for each namespace of a tenant that allows
    another cluster 2, one for its bookie affinity where bookies have groups, one for each partitioned topic and one
    pass over `__change_events`; one for each topic of a namespace that sends. For each replicator that is not idle and
    connected up to 18 more, on both clusters together.

    :raises Unavailable: a cluster stopped answering while it was read.
    """
    admins, unread = fleet.clusters, list[Unread]()
    clusters = await _clusters(fleet, connections, unread)
    namespaces = await _namespaces(admins, clusters, request, unread)
    rows, subscriptions = await _replicators(admins, namespaces, request)
    listed = {name for facts in namespaces.values() for name in facts.targets}
    by_name = {name: admin.connection for name, admin in admins.items()}
    located = [locate_peers(clusters[name], clusters, listed, by_name) for name in admins]
    clusters |= {facts.name: facts for facts in await asyncio.gather(*located)}
    clusters |= await _with_refusals(admins, clusters, rows)
    failing = [row for row in rows if _needs_details(row, namespaces)]
    if len(failing) > request.most_details:
        left = f"topics on the targets of {len(failing) - request.most_details:,} replicators that do not work"
        reason = f"only {request.most_details:,} of them are read; select fewer namespaces"
        about = frozenset(str(row.namespace) for row in failing[request.most_details :])
        unread.append(Unread(cluster=failing[-1].target, resource=left, reason=reason, about=about))
    targets = await read_targets(admins, failing[: request.most_details], unread)
    return FleetFacts(
        clusters=clusters,
        namespaces=namespaces,
        replicators=tuple(rows),
        targets=targets,
        subscriptions=subscriptions,
        unread=tuple(unread),
        calls={name: admin.calls for name, admin in admins.items()},
    )


async def _clusters(
    fleet: Fleet, connections: Sequence[ClusterConnection], unread: list[Unread]
) -> dict[str, ClusterFacts]:
    """The clusters that answer, and the others by the name that a connection or a peer gives them."""
    read = await asyncio.gather(*(read_cluster(admin, unread) for admin in fleet.clusters.values()))
    clusters = {facts.name: facts for facts in read}
    for connection in connections:
        if reason := fleet.behind.get(connection.name):
            name = _name_of(connection, read)
            clusters[name] = ClusterFacts(name=name, connection=connection.argument, outage=reason)
    return clusters


def _name_of(connection: ClusterConnection, read: Iterable[ClusterFacts]) -> str:
    """The name of a cluster that does not answer, by its connection or by the data that its peers have."""
    if connection.cluster_name:
        return connection.cluster_name
    known = {*connection.admin_urls, connection.service_url} - {None}
    peers = (peer for facts in read for peer in (facts.peers or {}).values())
    return next((peer.name for peer in peers if known.intersection(peer.addresses)), connection.name)


async def _namespaces(
    admins: Mapping[str, AdminClient], clusters: Mapping[str, ClusterFacts], request: Request, unread: list[Unread]
) -> dict[tuple[str, NamespaceName], NamespaceFacts]:
    names = await list_selected(admins, request.selection, unread)
    documents = await asyncio.gather(*(read_namespaces(admin, own, names, unread) for own, admin in admins.items()))
    every = {(facts.cluster, name): facts for read in documents for name, facts in read.items()}
    linked = {name for (own, name), facts in every.items() if _names_others(facts, own)}
    chosen = {key: facts for key, facts in every.items() if key[1] in linked}

    async def with_topics(own: str) -> list[NamespaceFacts]:
        async with TopicPolicyReader(admins[own], None) as reader:
            mine = [facts for (cluster, _), facts in chosen.items() if cluster == own]
            if clusters[own].has_bookie_groups:
                mine = await asyncio.gather(*(with_affinity(admins[own], facts, unread) for facts in mine))
            return list(await asyncio.gather(*(read_topics(admins[own], facts, reader, unread) for facts in mine)))

    read = await asyncio.gather(*map(with_topics, admins))
    return {(facts.cluster, facts.name): facts for group in read for facts in group}


def _names_others(facts: NamespaceFacts, own: str) -> bool:
    """Whether the namespace replicates, or a topic of it may, by a list of its own."""
    return bool({*facts.clusters, *facts.allowed_clusters, *(facts.tenant_clusters or ())} - {own})


async def _replicators(
    admins: Mapping[str, AdminClient], namespaces: Mapping[tuple[str, NamespaceName], NamespaceFacts], request: Request
) -> tuple[list[ReplicatorFacts], dict[tuple[str, TopicName], dict[str, float | None]]]:
    async def read(own: str) -> tuple[list[ReplicatorFacts], dict[TopicName, dict[str, float | None]]]:
        mine = [facts for (cluster, _), facts in namespaces.items() if cluster == own]
        return await read_replicators(admins[own], mine, request.reading_seconds)

    answers = dict(zip(admins, await asyncio.gather(*map(read, admins)), strict=True))
    subscriptions = {
        (own, topic): names for own, (_, replicated) in answers.items() for topic, names in replicated.items()
    }
    return [row for rows, _ in answers.values() for row in rows], subscriptions


async def _with_refusals(
    admins: Mapping[str, AdminClient], clusters: Mapping[str, ClusterFacts], rows: Iterable[ReplicatorFacts]
) -> dict[str, ClusterFacts]:
    """Whether the targets accept the stored credentials, where a replicator is not connected."""
    pairs = {(row.source, row.target) for row in rows if row.expected and not (row.last and row.last.connected)}
    tried: dict[str, ClusterFacts] = {}
    for source, target in sorted(pairs):
        facts = tried.get(source, clusters[source])
        peer = (facts.peers or {}).get(target)
        if peer is None or not peer.plugin or target not in admins or not clusters[target].demands_credentials():
            continue
        try:
            refusal = await try_credentials(admins[source], target, admins[target].connection)
        except FleetError:
            continue
        tried[source] = replace(facts, peers={**(facts.peers or {}), target: replace(peer, refusal=refusal)})
    return tried


def _needs_details(row: ReplicatorFacts, namespaces: Mapping[tuple[str, NamespaceName], NamespaceFacts]) -> bool:
    """Whether the topic on the target may tell why the replicator does not work: only where the target serves it."""
    there = namespaces.get((row.target, row.namespace))
    if not row.expected or row.error or there is None or not there.exists or there.topics is None:
        return False
    return row.last is None or not row.last.connected or (row.last.backlog > 0 and not row.moved)
