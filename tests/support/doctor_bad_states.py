"""Bad states of replication, by the diagnosis that names each: seeded on real clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar.schema import AvroSchema, Integer, Record, String
from tests.support.doctor_world import Seed, World

from pulsar_fleet.cluster.names import NamespaceName, TopicName

NORTH, SOUTH, WEST = "north", "south", "west"


def _record(**fields: object) -> type[Record]:
    """Versions of one record: Avro compares records of one name only."""
    return type("Order", (Record,), fields)


First = _record(name=String())
Wider = _record(name=String(), count=Integer())
Other = _record(name=Integer(required=True))


def topic_of(name: NamespaceName) -> TopicName:
    return TopicName(name, "events")


async def one_way(world: World) -> None:
    name = await world.make("one-way")
    await world.create(topic_of(name))
    await world.replicate(name, NORTH, SOUTH, on=[NORTH])
    await world.send(NORTH, topic_of(name))


def _creating(kind: str, partitions: int) -> dict[str, object]:
    override: dict[str, object] = {"allowAutoTopicCreation": True, "topicType": kind}
    return {"autoTopicCreationOverride": override | ({"defaultNumPartitions": partitions} if partitions else {})}


async def partitions_differ(world: World) -> None:
    """Issue 1 of PIP-433: applications on both clusters create the topic, with different counts."""
    policies = {NORTH: _creating("partitioned", 2), SOUTH: _creating("partitioned", 3)}
    name = await world.make("partitions-differ", policies=policies)
    await world.send(NORTH, topic_of(name))
    await world.send(SOUTH, topic_of(name))
    await world.replicate(name, NORTH, SOUTH)
    await world.send(NORTH, topic_of(name))


async def partitioned_on_one_side(world: World) -> None:
    policies = {NORTH: _creating("partitioned", 2), SOUTH: _creating("non-partitioned", 0)}
    name = await world.make("partitioned-on-one-side", policies=policies)
    await world.send(NORTH, topic_of(name))
    await world.send(SOUTH, topic_of(name))
    await world.replicate(name, NORTH, SOUTH)
    for partition in topic_of(name).partitions(2):
        await world.waiting(partition, NORTH, SOUTH)
    await world.send(NORTH, topic_of(name))


async def _held_by_schema(world: World, state: str) -> TopicName:
    lenient = {"schema_compatibility_strategy": "ALWAYS_COMPATIBLE"}
    name = await world.make(state, policies={NORTH: lenient})
    topic = topic_of(name)
    await world.create(topic)
    await world.replicate(name, NORTH, SOUTH)
    await world.waiting(topic, NORTH, SOUTH)
    await world.send(NORTH, topic, schema=AvroSchema(First), value=First(name="a"))
    await world.linked(topic)
    await world.send(NORTH, topic, schema=AvroSchema(Other), value=Other(name=1))
    return topic


async def schema_incompatible(world: World) -> None:
    await _held_by_schema(world, "schema-incompatible")


async def schema_blocked(world: World) -> None:
    """The strategy was corrected, and nobody unloaded the topic."""
    topic = await _held_by_schema(world, "schema-blocked")
    await asyncio.sleep(2)
    path = f"/namespaces/{topic.namespace.path}/schemaCompatibilityStrategy"
    await world.admins[SOUTH].put(path, "ALWAYS_COMPATIBLE")


async def schema_update_refused(world: World) -> None:
    """Issue 2 of PIP-433: schemas are added by hand only, and a new one was added on the source only."""
    by_hand = {"is_allow_auto_update_schema": False, "schema_compatibility_strategy": "FORWARD"}
    name = await world.make("schema-update-refused", policies={NORTH: by_hand, SOUTH: by_hand})
    topic = topic_of(name)
    await world.create(topic)
    for cluster, record in ((NORTH, First), (SOUTH, First), (NORTH, Wider)):
        schema = AvroSchema(record).schema_info().schema()
        await world.admins[cluster].post_schema(topic, {"type": "AVRO", "schema": schema, "properties": {}})
    await world.replicate(name, NORTH, SOUTH)
    await world.waiting(topic, NORTH, SOUTH)
    await world.send(NORTH, topic, schema=AvroSchema(Wider), value=Wider(name="a", count=1))


async def topic_missing(world: World) -> None:
    """Brokers of west create no topics on other clusters."""
    name = await world.make("topic-missing", WEST, SOUTH)
    await world.create(topic_of(name), WEST)
    await world.replicate(name, WEST, SOUTH)
    await world.send(WEST, topic_of(name))


async def namespace_missing(world: World) -> None:
    name = await world.make("namespace-missing", NORTH, allowed=[SOUTH])
    await world.admins[SOUTH].put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [NORTH, SOUTH]})
    await world.create(topic_of(name), NORTH)
    await world.replicate(name, NORTH, SOUTH, on=[NORTH])
    await world.send(NORTH, topic_of(name))


async def tenant_not_allowed(world: World) -> None:
    name = await world.make("tenant-not-allowed", NORTH, allowed=[SOUTH])
    await world.admins[SOUTH].put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [WEST]})
    await world.create(topic_of(name), NORTH)
    await world.replicate(name, NORTH, SOUTH, on=[NORTH])
    await world.send(NORTH, topic_of(name))


async def own_cluster_missing(world: World) -> None:
    foreign = {"replication_clusters": [NORTH]}
    name = await world.make("own-cluster-missing", policies={SOUTH: foreign})
    await world.create(topic_of(name), NORTH)
    await world.replicate(name, NORTH, SOUTH, on=[NORTH])
    await world.send(NORTH, topic_of(name))


async def cluster_data_missing(world: World) -> None:
    north = world.admins[NORTH]
    lost = f"lost-{world.suffix}"
    await north.put_cluster(lost, world.admins[SOUTH].connection.cluster_data())
    name = await world.make("cluster-data-missing", NORTH, allowed=[lost])
    await world.create(topic_of(name), NORTH)
    await world.replicate(name, NORTH, lost, on=[NORTH])
    await north.delete(f"/clusters/{lost}")


async def replicator_rate_limited(world: World) -> None:
    rate = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    name = await world.make("replicator-rate-limited")
    await world.create(topic_of(name))
    await world.admins[NORTH].post(f"/namespaces/{name.path}/replicatorDispatchRate", rate)
    await world.replicate(name, NORTH, SOUTH)
    await world.send(NORTH, topic_of(name), 500)


async def target_publish_limited(world: World) -> None:
    """Between two clusters of its own, since brokers hold back everything that comes over the same connection."""
    rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    policies = {WEST: {"publishMaxMessageRate": {WEST: rate}}}
    name = await world.make("target-publish-limited", NORTH, WEST, policies=policies)
    await world.create(topic_of(name), NORTH, WEST)
    await world.replicate(name, NORTH, WEST)
    await world.send(NORTH, topic_of(name), 500)


async def target_quota_exceeded(world: World) -> None:
    quota = {"destination_storage": {"limitSize": 2000, "limitTime": -1, "policy": "producer_exception"}}
    name = await world.make("target-quota-exceeded", policies={SOUTH: {"backlog_quota_map": quota}})
    topic = topic_of(name)
    await world.create(topic)
    await world.admins[SOUTH].create_subscription(topic, "nobody")
    await world.replicate(name, NORTH, SOUTH)
    # It is not connected either before it starts.
    await world.linked(topic)
    await world.send(NORTH, topic, 5, 1000)
    async with asyncio.timeout(90):
        while (await world.admins[NORTH].stats(topic))["replication"][SOUTH]["connected"]:
            await world.send(NORTH, topic, 1, 1000)
            await asyncio.sleep(1)


async def topic_terminated(world: World) -> None:
    name = await world.make("topic-terminated")
    topic = topic_of(name)
    await world.create(topic)
    await world.replicate(name, NORTH, SOUTH)
    await world.waiting(topic, NORTH, SOUTH)
    await world.send(NORTH, topic)
    await world.linked(topic)
    await world.admins[SOUTH].post(f"/{topic.path}/terminate")
    await world.send(NORTH, topic)


async def topic_list_differs(world: World) -> None:
    name = await world.make("topic-list-differs")
    topic = topic_of(name)
    await world.create(topic)
    await world.replicate(name, NORTH, SOUTH)
    await world.waiting(topic, NORTH, SOUTH)
    await world.send(NORTH, topic)
    await world.admins[SOUTH].post(f"/{topic.path}/replication", [SOUTH])


async def removed_cluster_in_tenant(world: World) -> None:
    north, old = world.admins[NORTH], f"old-{world.suffix}"
    await north.put_cluster(old, world.admins[SOUTH].connection.cluster_data())
    name = await world.make("removed-cluster-in-tenant")
    await north.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [NORTH, SOUTH, old]})
    await world.create(topic_of(name))
    await world.replicate(name, NORTH, SOUTH)
    await north.delete(f"/clusters/{old}")


@dataclass(frozen=True)
class BadState:
    """A state and how its remedy heals it.

    :param seed: makes it in a tenant of the name of the diagnosis.
    :param by_calls: the printed calls suffice.
    """

    seed: Seed
    by_calls: bool = False
    cluster: bool = False


BAD_STATES: Mapping[str, BadState] = {
    "one-way": BadState(one_way, by_calls=True),
    "partitions-differ": BadState(partitions_differ, by_calls=True),
    "partitioned-on-one-side": BadState(partitioned_on_one_side),
    "schema-incompatible": BadState(schema_incompatible, by_calls=True),
    "schema-blocked": BadState(schema_blocked, by_calls=True),
    "schema-update-refused": BadState(schema_update_refused, by_calls=True),
    "topic-missing": BadState(topic_missing, by_calls=True),
    "namespace-missing": BadState(namespace_missing, by_calls=True),
    "tenant-not-allowed": BadState(tenant_not_allowed, by_calls=True),
    "own-cluster-missing": BadState(own_cluster_missing, by_calls=True),
    "cluster-data-missing": BadState(cluster_data_missing, by_calls=True, cluster=True),
    "replicator-rate-limited": BadState(replicator_rate_limited, by_calls=True),
    "target-publish-limited": BadState(target_publish_limited, by_calls=True),
    "target-quota-exceeded": BadState(target_quota_exceeded),
    "topic-list-differs": BadState(topic_list_differs),
    "removed-cluster-in-tenant": BadState(removed_cluster_in_tenant, by_calls=True),
    # Last: its replicator sends without a pause, which slows the brokers.
    "topic-terminated": BadState(topic_terminated),
}
