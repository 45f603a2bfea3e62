"""The clusters to which a namespace replicates: cluster data, the tenant's clusters, the list, the replicators' end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.planning.hazards.guards import guard_cluster_lists
from pulsar_fleet.snapshot.resources import read_partition_counts

log = logging.getLogger(__name__)

_PRECONDITION_FAILED = 412
END_SECONDS = 30.0
_REPEAT_SECONDS = 1.0


async def register_cluster(blue: AdminClient, name: str, green: ClusterConnection) -> bool:
    """Create green's cluster data on blue, under its own name; True if it was missing. Existing data stays."""
    if await blue.cluster_data(name) is not None:
        return False
    await blue.put_cluster(name, green.cluster_data())
    return True


async def allow_cluster(blue: AdminClient, tenant: str, cluster: str) -> bool:
    """Allow the tenant's namespaces on blue to replicate to `cluster`; True if it was not allowed."""
    document = await blue.tenant(tenant)
    if document is None:
        raise NotFound(f"Tenant {tenant!r} does not exist on {blue.connection.name}.")
    allowed = list(document.get("allowedClusters") or [])
    if cluster in allowed:
        return False
    await blue.post(f"/tenants/{tenant}", {**document, "allowedClusters": [*allowed, cluster]})
    return True


async def disallow_cluster(blue: AdminClient, tenant: str, cluster: str) -> tuple[str, ...]:
    """Undo `allow_cluster`, unless a namespace of the tenant replicates to `cluster`: the broker refuses it then."""
    document = await blue.tenant(tenant)
    allowed = list((document or {}).get("allowedClusters") or [])
    if document is None or cluster not in allowed:
        return ()
    try:
        kept = [name for name in allowed if name != cluster]
        await blue.post(f"/tenants/{tenant}", {**document, "allowedClusters": kept})
    except FleetError as error:
        if error.status != _PRECONDITION_FAILED:
            raise
        log.info("tenant %s still replicates to %s", tenant, cluster)
        return ()
    return (f"allowed clusters of {tenant}",)


async def replicates_to(blue: AdminClient, namespace: NamespaceName, cluster: str) -> bool:
    """Whether the namespace replicates to `cluster`."""
    return cluster in await _clusters(blue, namespace)


async def begin_replication(blue: AdminClient, own: str, namespace: NamespaceName, cluster: str) -> bool:
    """Add `cluster` to the namespace's replication clusters on blue; True if it was missing."""
    current = await _clusters(blue, namespace)
    return await _set(blue, own, namespace, current, {*current, own, cluster})


async def end_replication(
    blue: AdminClient, own: str, namespace: NamespaceName, cluster: str, original: Collection[str]
) -> bool:
    """Remove `cluster` from the replication clusters, unless the namespace had it before; True if it was there.

    Other changes since then stay. Blue's own name always stays: without it blue would delete the topics. Returns when
    no topic has a replicator to `cluster`: a broker keeps one that was being started when the list changed (observed),
    and ends it when it reads the list again. Loads the topics. A second call does what is left.

    :param original: the namespace's replication clusters before the run.
    :raises PreconditionFailed: a topic still has a replicator to `cluster`, or cannot be read; the list is shorter.
    """
    if cluster in original:
        return False
    current = await _clusters(blue, namespace)
    removed = await _set(blue, own, namespace, current, {*current} - {cluster})
    await wait_ended(blue, own, namespace, cluster)
    return removed


async def wait_ended(blue: AdminClient, own: str, namespace: NamespaceName, cluster: str) -> None:
    """Wait until no topic of a namespace whose list lacks `cluster` has a replicator to it. It loads the topics.

    The list is stored again as it is, once a second, while a replicator is left: see `end_replication`.

    :raises PreconditionFailed: after 30 s a topic still has a replicator to `cluster`, or cannot be read.
    """
    partitions = [
        partition
        for topic, count in (await read_partition_counts(blue, namespace)).items()
        for partition in topic.partitions(count)
    ]
    loop = asyncio.get_running_loop()
    end = loop.time() + END_SECONDS
    while left := await _replicating(blue, partitions, cluster):
        if loop.time() >= end:
            raise PreconditionFailed(
                f"{namespace} does not list {cluster} any more, but {blue.connection.name} replicates "
                f"{len(left)} partitions to it still, or does not say whether it does, first {left[0]}. Store the "
                "namespace's list of clusters once more as it is."
            )
        await asyncio.sleep(_REPEAT_SECONDS)
        await _store(blue, own, namespace, await _clusters(blue, namespace))


async def _replicating(blue: AdminClient, partitions: Sequence[TopicName], cluster: str) -> list[TopicName]:
    """Partitions with a replicator to `cluster` that no policy of theirs asks for, and those that are unreadable."""
    answers = await stats_of(blue, partitions, precise=False)
    linked = [topic for topic, stats in answers.items() if _is_linked(stats, cluster)]
    lists = {topic: await _own_clusters(blue, topic) for topic in {topic.parent for topic in linked}}
    return [topic for topic in linked if cluster not in lists[topic.parent]]


def _is_linked(stats: TopicStats | FleetError, cluster: str) -> bool:
    if isinstance(stats, FleetError):
        # Unloaded under the flag of a migration it has no replicator, and the broker loads it no more.
        return not isinstance(stats, Conflict | NotFound)
    return cluster in stats.replication_connected


async def _own_clusters(blue: AdminClient, topic: TopicName) -> set[str]:
    """The clusters in a topic's own policies, local and global."""
    lists = [await blue.get(f"/{topic.path}/replication", isGlobal=scope) for scope in (False, True)]
    return {cluster for clusters in lists for cluster in clusters or ()}


async def _clusters(blue: AdminClient, namespace: NamespaceName) -> list[str]:
    return list((await blue.namespace(namespace) or {}).get("replication_clusters") or [])


async def _set(
    blue: AdminClient, own: str, namespace: NamespaceName, current: Collection[str], desired: Collection[str]
) -> bool:
    if {*current} == {*desired}:
        return False
    await _store(blue, own, namespace, desired)
    return True


async def _store(blue: AdminClient, own: str, namespace: NamespaceName, clusters: Collection[str]) -> None:
    call = with_body("POST", f"/namespaces/{namespace.path}/replication", sorted(clusters))
    guard_cluster_lists(call, own)
    await blue.post(call.path, call.body)
