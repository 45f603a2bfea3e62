"""Healthy states of replication, each of which looks like a fault from some side: seeded on real clusters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pulsar
from pulsar.schema import AvroSchema
from tests.support.doctor_bad_states import NORTH, SOUTH, First, topic_of
from tests.support.doctor_world import Seed, World

from pulsar_fleet.cluster.names import NamespaceName, TopicName


async def _both_ways(world: World, state: str, *, partitions: int = 0, **policies: Any) -> NamespaceName:
    name = await world.make(state, policies={cluster: policies for cluster in (NORTH, SOUTH)})
    await world.create(topic_of(name), partitions=partitions)
    await world.replicate(name, NORTH, SOUTH)
    await world.send(NORTH, topic_of(name))
    await world.send(SOUTH, topic_of(name))
    return name


async def plain(world: World) -> None:
    await _both_ways(world, "plain")


async def partitioned(world: World) -> None:
    await _both_ways(world, "partitioned", partitions=3)


async def receive_only(world: World) -> None:
    """South only receives."""
    name = await world.make("receive-only")
    await world.create(topic_of(name))
    await world.replicate(name, NORTH, SOUTH, on=[NORTH])
    await world.send(NORTH, topic_of(name))


async def receive_only_partitioned(world: World) -> None:
    name = await world.make("receive-only-partitioned")
    await world.create(topic_of(name), partitions=2)
    await world.replicate(name, NORTH, SOUTH, on=[NORTH])
    await world.send(NORTH, topic_of(name))


async def idle(world: World) -> None:
    name = await world.make("idle")
    await world.create(topic_of(name))
    await world.replicate(name, NORTH, SOUTH)


async def replicated_subscription(world: World) -> None:
    name = await _both_ways(world, "replicated-subscription")
    options = {"replicate_subscription_state_enabled": True}
    await world.consume(NORTH, topic_of(name), **options)
    await world.send(NORTH, topic_of(name), 20)


async def deduplicated(world: World) -> None:
    await _both_ways(world, "deduplicated", deduplicationEnabled=True)


async def expiring(world: World) -> None:
    await _both_ways(world, "expiring", message_ttl_in_seconds=60)


async def retained(world: World) -> None:
    retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}
    await _both_ways(world, "retained", retention_policies=retention)


async def topic_list(world: World) -> None:
    """The namespace replicates nowhere; one topic does, by its own list."""
    name = await world.make("topic-list")
    topic = topic_of(name)
    await world.create(topic)
    for cluster in (NORTH, SOUTH):
        await world.admins[cluster].post(f"/{topic.path}/replication", [NORTH, SOUTH])
    await world.send(NORTH, topic)


async def local_topic(world: World) -> None:
    """The namespace replicates; one topic stays on each cluster, by its own list."""
    name = await _both_ways(world, "local-topic")
    topic = TopicName(name, "local")
    await world.create(topic)
    for cluster in (NORTH, SOUTH):
        await world.admins[cluster].post(f"/{topic.path}/replication", [cluster])
    await world.send(NORTH, topic)


async def busy(world: World) -> None:
    """Ten thousand messages are being sent while the doctor reads."""
    name = await _both_ways(world, "busy")
    topic = topic_of(name)

    def publish() -> None:
        producer = world.clients[NORTH].create_producer(str(topic), block_if_queue_full=True)
        pause = threading.Event()
        for _ in range(1500):
            if world.closing.is_set():
                return
            for _ in range(5):
                producer.send_async(b"x" * 100, lambda *_: None)
            pause.wait(0.02)
        producer.close()

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    world.threads.append(thread)


async def freshly_loaded(world: World) -> None:
    """Nobody has loaded the topic since it was unloaded: its replicator does not run."""
    name = await _both_ways(world, "freshly-loaded")
    await world.linked(topic_of(name))
    await world.admins[NORTH].put(f"/namespaces/{name.path}/unload")


async def unloaded_target(world: World) -> None:
    name = await _both_ways(world, "unloaded-target", partitions=2)
    await asyncio.sleep(1)
    await world.admins[SOUTH].put(f"/{topic_of(name).path}/unload")


async def compacted(world: World) -> None:
    name = await _both_ways(world, "compacted")
    await world.admins[NORTH].put(f"/{topic_of(name).path}/compaction")


async def several_schemas(world: World) -> None:
    lenient = {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE"}
    name = await world.make("several-schemas", policies={NORTH: lenient, SOUTH: lenient})
    topic = topic_of(name)
    await world.create(topic)
    await world.replicate(name, NORTH, SOUTH)
    await world.send(NORTH, topic, schema=AvroSchema(First), value=First(name="a"))
    await world.send(SOUTH, topic, schema=AvroSchema(First), value=First(name="b"))


async def non_persistent(world: World) -> None:
    name = await _both_ways(world, "non-persistent")
    topic = TopicName(name, "ticker", persistent=False)
    await world.consume(NORTH, topic)


async def empty_namespace(world: World) -> None:
    await world.replicate(await world.make("empty-namespace"), NORTH, SOUTH)


async def paused_consumer(world: World) -> None:
    """A consumer on the target that reads nothing has a backlog; the replicator has none."""
    name = await _both_ways(world, "paused-consumer")
    await world.admins[SOUTH].create_subscription(topic_of(name), "paused")
    await world.send(NORTH, topic_of(name), 50)


async def limited_and_idle(world: World) -> None:
    """A dispatch rate that is not reached."""
    name = await _both_ways(world, "limited-and-idle")
    rate = {"dispatchThrottlingRateInMsg": 1000, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    await world.admins[NORTH].post(f"/namespaces/{name.path}/replicatorDispatchRate", rate)


async def connected_consumers(world: World) -> None:
    """Shared and failover consumers on both clusters."""
    name = await _both_ways(world, "connected-consumers", partitions=2)
    for cluster in (NORTH, SOUTH):
        await world.consume(cluster, topic_of(name), consumer_type=pulsar.ConsumerType.Shared)
        await world.consume(cluster, topic_of(name), "ledger", consumer_type=pulsar.ConsumerType.Failover)


HEALTHY_STATES: Mapping[str, Seed] = {
    "plain": plain,
    "partitioned": partitioned,
    "receive-only": receive_only,
    "receive-only-partitioned": receive_only_partitioned,
    "idle": idle,
    "replicated-subscription": replicated_subscription,
    "deduplicated": deduplicated,
    "expiring": expiring,
    "retained": retained,
    "topic-list": topic_list,
    "local-topic": local_topic,
    "busy": busy,
    "freshly-loaded": freshly_loaded,
    "unloaded-target": unloaded_target,
    "compacted": compacted,
    "several-schemas": several_schemas,
    "non-persistent": non_persistent,
    "empty-namespace": empty_namespace,
    "paused-consumer": paused_consumer,
    "limited-and-idle": limited_and_idle,
    "connected-consumers": connected_consumers,
}
RECEIVE_ONLY = ("receive-only", "receive-only-partitioned")
