"""Copy what is stored on blue to green by geo-replication, from the first message, in one direction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.cursors import cursors_in_stats
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.system_cursors import replicator_cursor
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import subscription_cursors
from pulsar_fleet.migration.artefacts import RESERVED_SUBSCRIPTIONS
from pulsar_fleet.planning.hazards.guards import guard_cluster_lists

log = logging.getLogger(__name__)

_PRECONDITION_FAILED = 412


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


async def copy_from_the_beginning(blue: AdminClient, topic: TopicName, cluster: str) -> None:
    """Let the replicator to `cluster` begin at the first stored message; call it before replication begins.

    It creates the replicator's cursor, which would begin at the newest message. The topic must stay loaded until
    replication begins: a topic that is loaded without it removes the cursor (observed).
    """
    name = replicator_cursor(cluster)
    try:
        await blue.create_subscription(topic, name)
    except Conflict:
        if name not in cursors_in_stats(await blue.internal_stats(topic)):
            # Replication ended since the topic was loaded: the cursor is gone, its name is still listed (observed).
            await blue.delete_subscription(topic, name)
            await blue.create_subscription(topic, name)


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

    Other changes since then stay. Blue's own name always stays: without it blue would delete the topics.

    :param original: the namespace's replication clusters before the run.
    """
    if cluster in original:
        return False
    current = await _clusters(blue, namespace)
    return await _set(blue, own, namespace, current, {*current} - {cluster})


async def _clusters(blue: AdminClient, namespace: NamespaceName) -> list[str]:
    return list((await blue.namespace(namespace) or {}).get("replication_clusters") or [])


async def _set(
    blue: AdminClient, own: str, namespace: NamespaceName, current: Collection[str], desired: Collection[str]
) -> bool:
    if {*current} == {*desired}:
        return False
    call = with_body("POST", f"/namespaces/{namespace.path}/replication", sorted(desired))
    guard_cluster_lists(call, own)
    await blue.post(call.path, call.body)
    return True


async def reserve_subscriptions(
    blue: AdminClient, green: AdminClient, topic: TopicName, *, consumed: bool = False
) -> tuple[str, ...]:
    """Create on green, at the earliest position, the idle subscriptions with a backlog that it lacks; their names.

    They keep what is replicated until their cursors are set. Call it before the first entry is replicated; a second
    call creates nothing.

    :param consumed: create all, also those with consumers: these will come without a redirect, at any time.
    """
    stats, internal, green_stats = await asyncio.gather(
        blue.stats(topic, precise=False), blue.internal_stats(topic), green.stats(topic, precise=False)
    )
    created = []
    present = TopicStats.of(topic, green_stats).subscriptions
    cursors = subscription_cursors(Ledgers.of(internal), TopicStats.of(topic, stats), internal)
    for name, cursor in cursors.items():
        if (consumed or (cursor.consumers == 0 and cursor.unread)) and name not in present:
            await green.create_subscription(topic, name)
            created.append(name)
    return tuple(created)


def store_reserved_subscriptions(run: Run, reserved: Mapping[TopicName, Sequence[str]]) -> None:
    """Add to the stored names of reserved subscriptions; an abort deletes them."""
    subscriptions = {topic: {*names} for topic, names in read_reserved_subscriptions(run).items()}
    for topic, names in reserved.items():
        subscriptions.setdefault(topic, set()).update(names)
    document = {str(topic): sorted(names) for topic, names in subscriptions.items() if names}
    run.artefacts.write_json(run.id, RESERVED_SUBSCRIPTIONS, document)


def read_reserved_subscriptions(run: Run) -> dict[TopicName, list[str]]:
    """Partition → the subscriptions that this run created on green to keep its backlog."""
    document = run.stored(RESERVED_SUBSCRIPTIONS) or {}
    return {TopicName.parse(topic): list(names) for topic, names in document.items()}
