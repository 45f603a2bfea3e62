"""Advice of the doctor that leaves a decision to a person: each decision is taken by the calls that it names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pulsar
import pytest
from tests.support.doctor_bad_states import (
    NORTH,
    SOUTH,
    partitioned_on_one_side,
    target_quota_exceeded,
    topic_list_differs,
    topic_of,
    topic_terminated,
)
from tests.support.doctor_world import World, arrived, know_all, world_of
from tests.support.fleets import connection
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.replication.doctor.model import Diagnosis, Severity
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
SETTINGS = {SOUTH: {"backlogQuotaCheckIntervalInSeconds": "2"}}
NOT_YET = 422


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("decisions"), clusters=(NORTH, SOUTH), settings=SETTINGS) as sandbox:
        yield sandbox


@pytest.fixture
async def world(sandbox: Sandbox) -> AsyncIterator[World]:
    async with world_of([connection(cluster) for cluster in sandbox]) as world:
        await know_all(world)
        yield world


async def advised(world: World, id_: str) -> dict[str, Diagnosis]:
    """What the doctor says about a state, by the resource's last part; it names the state, and sends nothing itself."""
    examination = await world.examine(id_)
    by_topic = {row.resource.rpartition("/")[2]: row for row in examination.diagnoses}
    assert id_ in {row.id for row in by_topic.values()}, examination.diagnoses
    assert not any(row.automatic for row in by_topic.values())
    return by_topic


async def assert_healed(world: World, id_: str) -> None:
    examination = await world.examine(id_)
    assert not examination.has_fault, (examination.diagnoses, examination.replicators)
    assert id_ not in {row.id for row in examination.diagnoses}


async def delete_alone(admin: AdminClient, topic: TopicName, own: str) -> None:
    """As the advice says: a list of its own cluster, then the topic, which the broker refuses for a moment."""
    await admin.post(f"/{topic.path}/replication", [own])
    async with asyncio.timeout(30):
        while True:
            try:
                return await admin.delete(f"/{topic.path}")
            except InvalidRequest as error:
                if error.status != NOT_YET:
                    raise
                await asyncio.sleep(0.5)


async def test_a_terminated_topic_is_deleted_and_gets_what_waited(world: World) -> None:
    await topic_terminated(world)
    topic = topic_of(world.namespace("topic-terminated"))
    advice = (await advised(world, "topic-terminated"))["events"].remedy
    for words in ("list of south alone", "POST …/replication", "DELETE", "unload the topic on north"):
        assert words in advice
    with pytest.raises(InvalidRequest, match="replicated"):
        await world.admins[SOUTH].delete(f"/{topic.path}")
    await delete_alone(world.admins[SOUTH], topic, SOUTH)
    await world.admins[NORTH].put(f"/{topic.path}/unload")
    await world.linked(topic)
    await assert_healed(world, "topic-terminated")
    assert await arrived(world.admins[SOUTH].connection, topic) == 5
    await world.admins[SOUTH].create_subscription(topic, "billing", "earliest")
    assert (await world.admins[SOUTH].stats(topic))["subscriptions"]["billing"]["msgBacklog"] == 5
    await world.send(SOUTH, topic, 3)
    await world.linked(topic, SOUTH, NORTH)
    assert await arrived(world.admins[NORTH].connection, topic) == 13


async def test_the_target_of_a_terminated_topic_leaves_the_list_instead(world: World) -> None:
    await topic_terminated(world)
    name = world.namespace("topic-terminated")
    advice = (await advised(world, "topic-terminated"))["events"].remedy
    assert "remove south from the list on north: what waits then never arrives" in advice
    await world.replicate(name, NORTH, on=[NORTH])
    await assert_healed(world, "topic-terminated")
    assert await arrived(world.admins[SOUTH].connection, topic_of(name)) == 5
    assert await arrived(world.admins[NORTH].connection, topic_of(name)) == 10


async def copy(world: World, cluster: str, source: TopicName, target: TopicName, count: int) -> None:
    """What the owner of an application does: read everything, and publish it under another name."""

    def work() -> None:
        client = open_client(world.admins[cluster].connection)
        try:
            reader = client.create_reader(str(source), pulsar.MessageId.earliest)
            producer = client.create_producer(str(target))
            for _ in range(count):
                producer.send(reader.read_next(5000).data())
        finally:
            client.close()

    await asyncio.to_thread(work)


async def test_of_a_topic_partitioned_on_one_side_the_wrong_one_is_moved(world: World) -> None:
    id_ = "partitioned-on-one-side"
    await partitioned_on_one_side(world)
    name = world.namespace(id_)
    topic, moved = topic_of(name), TopicName(name, "moved")
    advice, south = await advised(world, id_), world.admins[SOUTH]
    for words in ("a new name", "POST …/replication", "DELETE", "creates it"):
        assert words in advice["events"].remedy
    kept = advice["__change_events"]
    assert (kept.id, kept.severity, kept.calls) == ("policy-topic-differs", Severity.WARNING, ())
    await copy(world, SOUTH, topic, moved, 5)
    await delete_alone(south, topic, SOUTH)
    for partition in topic.partitions(2):
        await world.linked(partition)
    await assert_healed(world, id_)
    assert (await south.partition_metadata(topic)).partitions == 2
    assert await arrived(south.connection, topic) == 5
    assert await arrived(south.connection, moved) == 5
    await south.post(f"/{topic.path}/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100})
    assert (await south.get(f"/{topic.path}/retention"))["retentionTimeInMinutes"] == 60


LISTS: dict[str, Callable[[AdminClient, TopicName], Awaitable[object]]] = {
    "the same list on both": lambda south, topic: south.post(f"/{topic.path}/replication", [NORTH, SOUTH]),
    "remove the topic's list": lambda south, topic: south.delete(f"/{topic.path}/replication"),
}


@pytest.mark.parametrize("decision", LISTS)
async def test_a_topic_with_a_list_of_its_own_replicates_both_ways_again(world: World, decision: str) -> None:
    id_ = "topic-list-differs"
    await topic_list_differs(world)
    topic, south = topic_of(world.namespace(id_)), world.admins[SOUTH]
    await world.linked(topic)
    await world.send(SOUTH, topic, 2)
    advice = (await advised(world, id_))["events"]
    assert decision in advice.remedy
    assert "also not later" in advice.consequence
    await LISTS[decision](south, topic)
    await world.waiting(topic, SOUTH, NORTH)
    await world.send(SOUTH, topic, 3)
    await world.linked(topic, SOUTH, NORTH)
    await assert_healed(world, id_)
    assert await arrived(world.admins[NORTH].connection, topic) == 5 + 3
    assert await arrived(south.connection, topic) == 5 + 2 + 3


async def read_all(world: World, name: NamespaceName) -> None:
    """By a consumer that stays: what waited fills the backlog again otherwise."""
    await world.consume(
        SOUTH, topic_of(name), "nobody", message_listener=lambda consumer, message: consumer.acknowledge(message)
    )


async def delete_subscription(world: World, name: NamespaceName) -> None:
    await world.admins[SOUTH].delete_subscription(topic_of(name), "nobody")


async def raise_quota(world: World, name: NamespaceName) -> None:
    quota = {"limitSize": 10_000_000, "limitTime": -1, "policy": "producer_exception"}
    await world.admins[SOUTH].post(
        f"/namespaces/{name.path}/backlogQuota", quota, backlogQuotaType="destination_storage"
    )


QUOTA = {
    "let consumers on south read the backlog": read_all,
    "delete subscriptions that nobody needs": delete_subscription,
    "raise the quota": raise_quota,
}


@pytest.mark.parametrize("decision", QUOTA)
async def test_a_full_target_gets_the_backlog_when_it_is_below_the_quota(world: World, decision: str) -> None:
    id_ = "target-quota-exceeded"
    await target_quota_exceeded(world)
    name = world.namespace(id_)
    topic, sides = topic_of(name), [world.admins[cluster].connection for cluster in (NORTH, SOUTH)]
    assert decision in (await advised(world, id_))["events"].remedy
    await world.send(NORTH, topic, 3)
    ours, theirs = [await arrived(side, topic) for side in sides]
    assert theirs <= ours - 3
    await QUOTA[decision](world, name)
    await world.linked(topic)
    await assert_healed(world, id_)
    assert await arrived(sides[0], topic) == ours
    # What south had stored and not confirmed when it refused the replicator is sent once more.
    assert await arrived(sides[1], topic) >= ours
