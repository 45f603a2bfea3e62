"""End links in the only safe order: what is still to be sent is sent first, and what is still used stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.error_map import is_migrated
from pulsar_fleet.cluster.errors import PlanOutdated
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.model import OWN_LIST, TOPIC_CLUSTERS
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.links.lag import ReplicationProgress, read_replication_progress
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Change, Plan
from pulsar_fleet.replication.setup.links import partitions_of
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_fleet.replication.topology import Link
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.resources import read_clusters_in_effect

_LISTS = ("replication_clusters", "allowed_clusters")


async def connected_producers(admin: AdminClient, namespaces: Sequence[str]) -> dict[str, int]:
    """Topic or partition → the number of connected producers of applications. It loads the topics.

    A topic that a migration ended there, and that does not load any more, has none.

    :raises FleetError: the statistics of a topic cannot be read, so that nobody knows.
    """
    producers: dict[str, int] = {}
    for topic, stats in (await stats_of(admin, await partitions_of(admin, namespaces, ()), precise=False)).items():
        if isinstance(stats, TopicStats):
            producers[str(topic)] = stats.producers
        elif not is_migrated(stats):
            raise stats
    return producers


def ending_links(plan: ReplicationPlan, namespace: str, source: str) -> tuple[Link, ...]:
    """The links of one cluster that end in a namespace, for all of its topics or for some."""
    changes = (change for change in plan.clusters[source].ends.changes if _is_list(change, namespace))
    return tuple(sorted({Link(source, target) for change in changes for target in _targets(plan, change, source)}))


def _is_list(change: Change, namespace: str) -> bool:
    of_namespace = change.resource is Resource.POLICY and change.field == "replication_clusters"
    return str(change.namespace) == namespace and (of_namespace or _is_topic_list(change))


def _is_topic_list(change: Change) -> bool:
    return change.resource is Resource.TOPIC_POLICY and change.field == OWN_LIST


def growing_topic_lists(plan: ReplicationPlan, source: str) -> dict[TopicName, list[str]]:
    """Topic → the list of its own that it gets when links start."""
    changes = (change for change in plan.clusters[source].starts.changes if _is_topic_list(change))
    return {TopicName.parse(change.name): list(change.after) for change in changes}


def _targets(plan: ReplicationPlan, change: Change, source: str) -> set[str]:
    """The clusters that a list loses; without a list of its own a topic goes on to those that remain."""
    if _is_topic_list(change):
        gone = plan.topology.gone_from(source)
        return gone & {*(change.before or gone)}
    return {*(change.before or ())} - {*change.after} - {source}


async def unsent(
    admin: AdminClient, plan: ReplicationPlan, namespaces: Sequence[str], link: Link
) -> ReplicationProgress:
    """What an ending link has not sent yet, where namespaces or topics still have the link. It loads the topics."""
    listing = [
        name
        for name in namespaces
        if link.target in ((await admin.namespace(NamespaceName.parse(name)) or {}).get("replication_clusters") or ())
    ]
    topics = [
        change.name
        for change in plan.clusters[link.source].ends.changes
        if _is_topic_list(change)
        and link.target in _targets(plan, change, link.source)
        and link.target in await read_clusters_in_effect(admin, TopicName.parse(change.name))
    ]
    partitions = {*await partitions_of(admin, listing, ())}
    if topics:
        partitions |= {*await partitions_of(admin, namespaces, topics)}
    return await read_replication_progress(admin, link.target, sorted(partitions))


async def require_lists_kept(admin: AdminClient, plan: ReplicationPlan, source: str) -> None:
    """Return if a topic that loses its own list goes on to every cluster of it that remains.

    The list of its namespace counts for it then, and may have changed since the plan.

    :raises PlanOutdated: it would lose one; nothing of this cluster was changed.
    """
    for change in plan.clusters[source].ends.changes:
        if _is_topic_list(change) and change.after is None:
            remaining = await read_clusters_in_effect(admin, TopicName.parse(change.name), without_own=True)
            if cut := sorted({*change.before} - {*remaining} - plan.topology.gone_from(source)):
                raise PlanOutdated(
                    f"{change.name} on {source} replicates to {', '.join(cut)} by its own list only, which this run "
                    "would take away: the list of its namespace has changed since the plan. No link of "
                    f"{source} has been ended; start a new run.",
                    cluster=source,
                )


async def cluster_data_in_use(admin: AdminClient, plan: Plan, redactor: Redactor) -> dict[str, str]:
    """Cluster whose data the plan deletes → what here still refers to it.

    It reads the whole cluster, since the broker deletes a cluster's data while namespaces replicate to it (observed).
    What could not be read counts as a reference.
    """
    peers = [change.name for change in cluster_data_of(plan, {}).changes]
    if not peers:
        return {}
    snapshot = await collect(admin, redactor=redactor)
    references = {peer: next(_references(snapshot, peer), "") for peer in peers}
    return {peer: reference for peer, reference in references.items() if reference}


def _references(snapshot: Snapshot, peer: str) -> Iterator[str]:
    for note in snapshot.unreadable:
        if not note.concerns_brokers:
            yield f"{note.resource}, which could not be read"
    for tenant in snapshot.tenants:
        if peer in tenant.allowed_clusters:
            yield f"tenant {tenant.name}"
    for namespace in snapshot.namespaces:
        if any(peer in (namespace.policies.get(field) or ()) for field in _LISTS):
            yield f"namespace {namespace.name}"
    for state in snapshot.topic_policies:
        if peer in (state.policies.get(TOPIC_CLUSTERS) or ()):
            yield f"a {state.scope} policy of {state.topic}"


async def tenants_in_use(admin: AdminClient, plan: Plan) -> dict[str, str]:
    """Tenant that the plan shortens → a namespace of it, selected or not, that still lists a cluster which it loses.

    Calls: one for each of these tenants and for each of their namespaces.
    """
    used: dict[str, str] = {}
    for change in tenants_of(plan, {}).changes:
        lost = {*change.before["allowedClusters"]} - {*change.after["allowedClusters"]}
        for namespace in await admin.namespaces(change.name):
            document = await admin.namespace(namespace) or {}
            if any(lost & {*(document.get(field) or ())} for field in _LISTS):
                used[change.name] = str(namespace)
    return used


def lists_of(plan: Plan) -> Plan:
    """The cluster lists of a plan, without its tenants and cluster data."""
    return _only(plan, lambda change: change.namespace is not None)


def tenants_of(plan: Plan, used: Mapping[str, str]) -> Plan:
    """The tenants of a plan, without those that are still used."""
    return _only(plan, lambda change: change.resource is Resource.TENANT and change.name not in used)


def cluster_data_of(plan: Plan, used: Mapping[str, str]) -> Plan:
    """The cluster data of a plan, without what is still used."""
    return _only(plan, lambda change: change.resource is Resource.CLUSTER and change.name not in used)


def _only(plan: Plan, condition: Callable[[Change], bool]) -> Plan:
    return replace(plan, changes=tuple(change for change in plan.changes if condition(change)))
