"""Replication on real brokers that ends, also where it is only just being started, or that stands still."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.migration.test_gate_remedies import west_of, without
from tests.contract.migration.test_remedies import Fleet, fleet
from tests.support.moved_namespace import MovedNamespace
from tests.support.replication import know_each_other, wait_linked
from tests.support.waits import wait_replicated

from pulsar_fleet.airflow.conditions import ReplicationCondition
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.links.cluster_lists import begin_replication, end_replication
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.model import Moves, Strategy

__all__ = ["fleet"]


async def _linked(fleet: Fleet, topic: TopicName) -> set[str]:
    partitions = topic.partitions(2)
    answers = await asyncio.gather(*(fleet.blue.stats(partition) for partition in partitions))
    return {
        cluster
        for partition, stats in zip(partitions, answers, strict=True)
        for cluster in TopicStats.of(partition, stats).replication_connected
    }


@pytest.mark.cluster
async def test_replication_that_is_not_connected_has_not_caught_up(
    fleet: Fleet,
) -> None:
    name, topic = fleet.next, TopicName(fleet.next, "events")
    (west,) = clusters = (f"{name.tenant}-west",)
    await west_of(fleet.blue, name, clusters)
    await fleet.blue.post(f"/namespaces/{name.path}/replication", ["blue", west])
    caught_up, text = await ReplicationCondition(to_cluster=west, topic=str(topic)).read(fleet.blue.connection)
    await without(fleet.blue, name, clusters)
    assert (caught_up, text) == (False, f"{topic} to {west}: 0 entries to send, 2 topics not connected")


@pytest.mark.long
async def test_a_replicator_that_is_being_started_is_ended_too(fleet: Fleet) -> None:
    """A broker keeps a replicator that it was starting when two changes of the list came one after the other."""
    name, topic = fleet.next, TopicName(fleet.next, "events")
    west = tuple(f"{name.tenant}-{side}" for side in ("west", "east"))
    await west_of(fleet.blue, name, west)
    for attempt in range(12):
        await fleet.blue.post(f"/namespaces/{name.path}/replication", ["blue", *west])
        await asyncio.sleep(0.2 + 0.02 * attempt)
        for cluster in west:
            assert await end_replication(fleet.blue, "blue", name, cluster, ["blue"])
        assert not await _linked(fleet, topic)
    await without(fleet.blue, name, west)


@pytest.mark.long
async def test_a_topic_that_lists_the_cluster_itself_keeps_its_replicator(fleet: Fleet) -> None:
    name, topic = fleet.next, TopicName(fleet.next, "events")
    await know_each_other(fleet.blue, fleet.green)
    for admin in (fleet.blue, fleet.green):
        await admin.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "green"]})
    await fleet.blue.post(f"/{topic.path}/replication", ["blue", "green"])
    assert await begin_replication(fleet.blue, "blue", name, "green")
    await wait_linked(fleet.blue, topic.partitions(2), "green")
    assert await end_replication(fleet.blue, "blue", name, "green", ["blue"])
    assert not await end_replication(fleet.blue, "blue", name, "green", ["blue"])
    assert await _linked(fleet, topic) == {"green"}
    assert (await fleet.blue.namespace(name) or {})["replication_clusters"] == ["blue"]
    await fleet.blue.delete(f"/{topic.path}/replication")
    async with asyncio.timeout(20):
        while await _linked(fleet, topic):
            await asyncio.sleep(0.2)


@pytest.mark.cluster
async def test_a_copy_that_stands_still_says_why(moved: MovedNamespace) -> None:
    await moved.publish("live", 5)
    reference, _ = await steps.check_gates(moved.sides, moved.run, [moved.namespace], Strategy.REPLICATE)
    moves = Moves.from_json(moved.run.artefacts.read_json(reference))
    await steps.prepare_green(moved.sides, moved.run, moves)
    await moved.green.post(f"/{moved.topic('live').path}/terminate")
    await steps.freeze_blue(moved.sides, moved.run, moves)
    await steps.start_replication(moved.sides, moved.run, moves)
    named = rf"6 entries still to replicate; .*; it stands still: topic-terminated, {moved.topic('live')}: .* Do: "
    with pytest.raises(PreconditionFailed, match=named):
        await wait_replicated(moved.sides, moved.run, moves, seconds=6, poll_seconds=0.5, progress=str)
