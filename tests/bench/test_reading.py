"""Messages per CPU-second: our engine with digests, beside a bare loop over the same client's reader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pulsar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.messages.digests import ALL
from pulsar_fleet.messages.engines.engines import Engines
from pulsar_fleet.messages.ranges import Range, TopicBounds, cut
from pulsar_fleet.messages.scan import sum_up

MESSAGES = 100_000
BUCKETS = 256
PAYLOAD = b"x" * 100


def test_reading(blue: ClusterConnection, new_namespace: Callable[[], NamespaceName]) -> None:
    topic = TopicName(new_namespace(), "events")
    asyncio.run(make_topic(blue, topic))
    _fill(blue, topic)
    (part,) = cut(asyncio.run(topic_bounds(blue, topic)), pair=0, publish_time=True, entries_per_range=MESSAGES)
    floor, ours = _measure(lambda: _bare(blue, topic)), _measure(lambda: _digests(blue, part))
    print(f"\nbare read_next     {floor:10,.0f} messages/CPU-s  (floor)")
    print(f"engine and digests {ours:10,.0f} messages/CPU-s  {ours / floor:.2f} of the floor")


def _measure(read: Callable[[], int]) -> float:
    read()  # connections, imports and the broker's cache are warm then
    began = time.process_time()
    assert read() == MESSAGES
    return MESSAGES / (time.process_time() - began)


def _bare(connection: ClusterConnection, topic: TopicName) -> int:
    client = pulsar.Client(connection.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(str(topic), pulsar.MessageId.earliest)
    for _ in range(MESSAGES):
        reader.read_next()
    client.close()
    return MESSAGES


def _digests(connection: ClusterConnection, part: Range) -> int:
    with Engines(connection) as engine:
        return sum(row.sums.count for row in sum_up(engine, part, BUCKETS) if row.bucket == ALL)


def _fill(connection: ClusterConnection, topic: TopicName) -> None:
    client = pulsar.Client(connection.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        str(topic), batching_enabled=True, batching_max_messages=100, block_if_queue_full=True
    )
    for number in range(MESSAGES):
        producer.send_async(PAYLOAD, _sent, partition_key=f"key-{number % 100}", properties={"n": str(number)})
    producer.flush()
    client.close()


def _sent(result: pulsar.Result, _id: pulsar.MessageId) -> None:
    assert result == pulsar.Result.Ok


async def make_topic(connection: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(connection) as admin:
        own = await admin.cluster_name()
        await admin.put(f"/tenants/{topic.namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        await admin.put_namespace(topic.namespace, {"replication_clusters": [own], "retention_policies": kept})
        await admin.create_topic(topic)


async def topic_bounds(connection: ClusterConnection, topic: TopicName) -> TopicBounds:
    async with AdminClient(connection) as admin:
        return TopicBounds.whole(str(topic), await admin.internal_stats(topic))
