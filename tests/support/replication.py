"""Namespaces that geo-replicate from one cluster to another, for tests that compare the copies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName

FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
"""Without a subscription and without retention a broker may delete messages at any time."""


async def know_each_other(first: AdminClient, second: AdminClient) -> None:
    """Make each cluster known to the other by its name, once."""
    for admin, other in ((first, second), (second, first)):
        name, peer = await other.cluster_name(), other.connection
        if name not in await admin.clusters():
            await admin.put_cluster(name, {"serviceUrl": peer.admin_url, "brokerServiceUrl": peer.service_url})


async def replicate(source: AdminClient, target: AdminClient, namespace: NamespaceName) -> None:
    """Make the namespace on both, replicated from source to target, with everything kept."""
    names = [await source.cluster_name(), await target.cluster_name()]
    for admin in (target, source):
        if namespace.tenant not in await admin.tenants():
            await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": names})
        own = await admin.cluster_name()
        await admin.put_namespace(namespace, {"replication_clusters": [own], "retention_policies": FOREVER})
    await source.post(f"/namespaces/{namespace.path}/replication", names)


async def make_alone(admin: AdminClient, namespace: NamespaceName) -> None:
    """Make the namespace on one cluster, with everything kept; a tenant that exists stays as it is."""
    own = await admin.cluster_name()
    if namespace.tenant not in await admin.tenants():
        await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
    await admin.put_namespace(namespace, {"replication_clusters": [own], "retention_policies": FOREVER})


async def wait_linked(source: AdminClient, topics: Iterable[TopicName], target: str) -> None:
    """Until the replicator of each topic is connected; loads the topics."""
    async with asyncio.timeout(60):
        for topic in topics:
            while not ((await source.stats(topic))["replication"].get(target) or {}).get("connected"):
                await asyncio.sleep(0.1)


async def make_replicated(source: AdminClient, target: AdminClient, topic: TopicName) -> TopicName:
    """Make an empty topic in a namespace that both have, keep all of it, and replicate it; waits for the link."""
    await know_each_other(source, target)
    names = [await source.cluster_name(), await target.cluster_name()]
    for admin in (source, target):
        await admin.post(f"/tenants/{topic.namespace.tenant}", {"adminRoles": [], "allowedClusters": names})
        await admin.post(f"/namespaces/{topic.namespace.path}/retention", FOREVER)
        await admin.create_topic(topic)
    await source.post(f"/namespaces/{topic.namespace.path}/replication", names)
    await wait_linked(source, [topic], names[1])
    return topic
