"""A link that sends nothing any more is reported, and starts again when shadow topics follow their sources.

A broker hands the schema of a message that it replicated to another cluster to the next message of a shadow topic,
which has no such schema; the replicator then stops for good (observed, 3.0.7 to 4.2.4).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record
from tests.contract.read_only.test_serve import Serving
from tests.support.replication import know_each_other, replicate, wait_linked
from tests.support.shadows import STORED, make_source, publish

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.read_only.upkeep.follow import follow_sources
from pulsar_fleet.read_only.upkeep.watch import alarms, watch_namespace
from pulsar_sandbox import Sandbox

pytestmark = pytest.mark.long

TOPICS, MESSAGES = 8, 10
"""Enough for each thread of a broker to have replicated some."""


@pytest.fixture
def serving(
    on_blue: AdminClient, clusters: Sandbox, new_namespace: Callable[[], NamespaceName], records: Path
) -> Serving:
    return Serving(on_blue, clusters, new_namespace().tenant)


class Order(Record):
    number = Integer()


def publish_orders(service_url: str, topics: list[TopicName]) -> None:
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    for topic in topics:
        producer = client.create_producer(str(topic), schema=AvroSchema(Order))
        for number in range(MESSAGES):
            producer.send(Order(number=number))
    client.close()


async def replicated_topics(serving: Serving, on_green: AdminClient) -> list[TopicName]:
    """Topics that this cluster replicates to the other one."""
    namespace = NamespaceName(f"{serving.owner.tenant}-orders", "orders")
    topics = [TopicName(namespace, f"orders-{number}") for number in range(TOPICS)]
    await know_each_other(serving.admin, on_green)
    await replicate(serving.admin, on_green, namespace)
    for topic in topics:
        await serving.admin.create_topic(topic)
    await wait_linked(serving.admin, topics, await on_green.cluster_name())
    return topics


async def replicate_orders(serving: Serving, on_green: AdminClient, topics: list[TopicName], rounds: int) -> None:
    """Publish messages with a schema, and wait until the other cluster has them."""
    await asyncio.to_thread(publish_orders, serving.cluster.service_url, topics)
    async with asyncio.timeout(60):
        for topic in topics:
            while (await on_green.internal_stats(topic))["numberOfEntries"] < MESSAGES * rounds:
                await asyncio.sleep(0.1)


async def stop_links(serving: Serving, on_green: AdminClient) -> None:
    """Publish on the source until its link has stopped."""
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    await serving.serve("events")
    topics = await replicated_topics(serving, on_green)
    async with asyncio.timeout(180):
        for rounds in itertools.count(1):
            await replicate_orders(serving, on_green, topics, rounds)
            await asyncio.to_thread(publish, serving.cluster.service_url, serving.topic("events"), 5)
            _, findings = await watch_namespace(serving.admin, serving.readers, 60)
            if "link-stopped" in {finding.id for finding in findings}:
                return


async def test_a_link_that_stopped_is_an_alarm_and_starts_again(serving: Serving, on_green: AdminClient) -> None:
    await stop_links(serving, on_green)
    before = await serving.received("events", "before")
    stored = (await serving.admin.internal_stats(serving.topic("events")))["numberOfEntries"]
    assert STORED <= before < stored
    run = Run.open(f"watch/{serving.readers.tenant}")
    followed = await follow_sources(serving.admin, serving.readers, 60, run)
    assert followed.restarted == (str(serving.topic("events")),)
    async with asyncio.timeout(30):
        while await serving.received("events", "after") < stored:
            pass
    _, findings = await watch_namespace(serving.admin, serving.readers, 60)
    assert not alarms(findings)
    assert (await follow_sources(serving.admin, serving.readers, 60, run)).restarted == ()
    (change,) = run.ledger.changes(f"{run.id}/{serving.readers}")
    assert change.resource == f"topic {serving.topic('events')}"
