"""Topics that one of several brokers serves."""

from __future__ import annotations

import asyncio
import uuid

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName


async def topic_of_broker(admin: AdminClient, number: int) -> TopicName:
    """A topic of broker `number`; brokers have hosts of their own."""
    (owner,) = [address for address in await admin.brokers() if address.startswith(f"127.0.0.{number + 1}:")]
    return await topic_served_by(admin, owner)


async def topic_served_by(admin: AdminClient, owner: str) -> TopicName:
    """A topic in a namespace of one bundle that a broker (`host:port`) owns."""
    name, own = NamespaceName(f"test-{uuid.uuid4().hex[:10]}", "orders"), await admin.cluster_name()
    await admin.put(f"/tenants/{name.tenant}", {"allowedClusters": [own], "adminRoles": ["tenant-admin"]})
    bundles = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
    await admin.put_namespace(name, {"replication_clusters": [own], "bundles": bundles})
    topic = TopicName(name, "events")
    await admin.create_topic(topic)
    await serve_from(admin, topic, owner)
    return topic


async def serve_from(admin: AdminClient, topic: TopicName, owner: str) -> None:
    """Let a broker (`host:port`) own the bundle of a topic or partition."""
    bundle = f"{topic.namespace.path}/{await admin.bundle(topic)}"
    async with asyncio.timeout(60):
        # A busy cluster may give it to another broker than the one that is asked for.
        while bundle not in await admin.owned_bundles(owner):
            await admin.put(f"/namespaces/{bundle}/unload", destinationBroker=owner)
            await admin.stats(topic)
