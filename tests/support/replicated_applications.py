"""Applications with replicated subscriptions on two clusters, which a test leaves in different positions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pulsar
from tests.support.replication import FOREVER, know_each_other, wait_linked

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName

_RECEIVE_MS = 1_500


async def replicate_both_ways(first: AdminClient, second: AdminClient, namespace: NamespaceName) -> None:
    """Make the namespace on both clusters, replicated in both directions, with everything kept."""
    await know_each_other(first, second)
    names = [await first.cluster_name(), await second.cluster_name()]
    for admin in (first, second):
        await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": names})
        await admin.put_namespace(namespace, {"replication_clusters": names, "retention_policies": FOREVER})


async def make_topics(
    first: AdminClient, second: AdminClient, topics: Iterable[TopicName], partitioned: Iterable[TopicName]
) -> list[TopicName]:
    """Make plain and partitioned topics (two partitions) on both; what stores messages, once it replicates."""
    stored = []
    for topic in topics:
        await first.create_topic(topic)
        stored.append(topic)
    for topic in partitioned:
        for admin in (first, second):
            await admin.create_partitioned_topic(topic, 2)
        stored += topic.partitions(2)
    await wait_linked(first, stored, await second.cluster_name())
    await wait_linked(second, stored, await first.cluster_name())
    return stored


@dataclass(frozen=True)
class Application:
    """One consumer of a topic, with a replicated subscription."""

    topic: TopicName
    subscription: str
    kind: pulsar.ConsumerType = pulsar.ConsumerType.Shared

    def subscribe(self, client: pulsar.Client) -> pulsar.Consumer:
        """Connect it, on whichever cluster the client is."""
        return client.subscribe(
            str(self.topic),
            self.subscription,
            consumer_type=self.kind,
            initial_position=pulsar.InitialPosition.Earliest,
            replicate_subscription_state_enabled=True,
        )

    def take(self, client: pulsar.Client, count: int, *, leave: Collection[str] = ()) -> list[str]:
        """Acknowledge `count` messages, each one by itself, and none of those in `leave`."""
        consumer = self.subscribe(client)
        taken: list[str] = []
        while len(taken) < count:
            message = consumer.receive(20_000)
            if (name := message.data().decode()) not in leave:
                consumer.acknowledge(message)
                taken.append(name)
        consumer.close()
        return taken

    def drain(self, client: pulsar.Client) -> list[str]:
        """Get everything that is delivered, and acknowledge it."""
        consumer = self.subscribe(client)
        drained = []
        while True:
            try:
                message = consumer.receive(_RECEIVE_MS)
            except pulsar.Timeout:
                consumer.close()
                return drained
            drained.append(message.data().decode())
            consumer.acknowledge(message)


def publish(client: pulsar.Client, topic: TopicName, names: Sequence[str], *, batch: int = 1) -> None:
    """Publish messages named by their payload, in batches of `batch`."""
    producer = client.create_producer(
        str(topic),
        batching_enabled=batch > 1,
        batching_max_messages=max(2, batch),
        batching_max_publish_delay_ms=10_000,
    )
    for number, name in enumerate(names, 1):
        producer.send_async(name.encode(), None, partition_key=f"key-{number % 7}")
        if number % batch == 0:
            producer.flush()
    producer.flush()
    producer.close()


async def wait_everywhere(admins: Iterable[tuple[AdminClient, str]], topics: Sequence[TopicName]) -> None:
    """Until nothing waits for replication, in both directions."""
    async with asyncio.timeout(30):
        for admin, other in admins:
            for topic in topics:
                while (await admin.stats(topic, precise=False))["replication"][other]["replicationBacklog"]:
                    await asyncio.sleep(0.1)
