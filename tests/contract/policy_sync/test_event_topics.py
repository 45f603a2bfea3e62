"""Partitioned topics by events between two real clusters: created, grown, never shrunk, with properties and schemas."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.event_exchange import Exchange
from tests.support.partitioned_topics import partitions, produce, properties, record, schemas

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

PARTITIONS_3, PARTITIONS_5 = 3, 5


async def test_a_partitioned_topic_is_created_and_grown_with_its_schemas(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    topic = TopicName(shared, "orders")
    await on_blue.create_partitioned_topic(topic, PARTITIONS_3, {"owner": "sales", "tier": "1"})
    await on_blue.post_schema(topic, record("id"))
    summary = await exchange.run()
    assert [tally.reasons for tally in summary.clusters.values()] == [[], []]
    assert await partitions(on_green, topic) == PARTITIONS_3
    assert await properties(on_green, topic) == {"owner": "sales", "tier": "1"}
    assert await schemas(on_green, topic) == await schemas(on_blue, topic) != []
    await exchange.settle()
    await on_green.post(f"/{topic.path}/partitions", PARTITIONS_5)
    await on_green.put(f"/{topic.path}/properties", {"owner": "billing"})
    await on_blue.post_schema(topic, record("id", "price"))
    summary = await exchange.run()
    assert [tally.reasons for tally in summary.clusters.values()] == [[], []]
    # An edit that was found here proves that the topic was not created again since.
    await on_green.delete(f"/{topic.path}/properties", key="tier")
    summary = await exchange.run()
    assert [tally.reasons for tally in summary.clusters.values()] == [[], []]
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [PARTITIONS_5] * 2
    assert [await properties(admin, topic) for admin in (on_blue, on_green)] == [{"owner": "billing"}] * 2
    assert await schemas(on_green, topic) == await schemas(on_blue, topic)
    assert len(await schemas(on_green, topic)) == 2
    await exchange.settle()


@pytest.mark.long
async def test_a_topic_that_arrives_together_with_its_policies_has_them(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    topics = [TopicName(shared, f"orders-{number}") for number in range(3)]
    for topic in topics:
        await on_blue.create_partitioned_topic(topic, 1)
        await on_blue.post(f"/{topic.path}/maxProducers", 9)
    summary = await exchange.run()
    assert [tally.reasons for tally in summary.clusters.values()] == [[], []]
    assert [await on_green.get(f"/{topic.path}/maxProducers") for topic in topics] == [9] * 3


@pytest.mark.long
async def test_of_two_partition_counts_the_larger_one_counts_whoever_was_later(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    topic = TopicName(shared, "orders")
    await on_blue.create_partitioned_topic(topic, 2)
    await exchange.settle()
    await on_blue.post(f"/{topic.path}/partitions", PARTITIONS_5)
    await asyncio.sleep(1.1)
    await on_green.post(f"/{topic.path}/partitions", PARTITIONS_3)
    await exchange.run()
    summary = await exchange.run()
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [PARTITIONS_5] * 2
    assert [tally.refused for tally in summary.clusters.values()] == [0, 0]
    await exchange.settle()
    await exchange.run(snapshot=True)
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [PARTITIONS_5] * 2


@pytest.mark.long
async def test_a_partitioned_topic_that_a_client_created_is_carried(
    on_blue: AdminClient,
    on_green: AdminClient,
    shared: NamespaceName,
    exchange: Exchange,
    green: ClusterConnection,
) -> None:
    override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": PARTITIONS_3}
    await on_green.post(f"/namespaces/{shared.path}/autoTopicCreation", override)
    await exchange.settle()
    topic = TopicName(shared, "by-a-client")
    produce(green, topic)
    summary = await exchange.run()
    assert await partitions(on_blue, topic) == PARTITIONS_3
    assert summary.clusters["green"].new_topics == [f"{topic}: 3 partitions"]
    assert summary.clusters["blue"].new_topics == []


@pytest.mark.long
async def test_a_topic_without_partitions_beside_a_partitioned_one_is_a_conflict(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, green: ClusterConnection
) -> None:
    topic = TopicName(shared, "orders")
    produce(green, topic)
    await on_blue.create_partitioned_topic(topic, PARTITIONS_3)
    summary = await exchange.run()
    (reason,) = summary.clusters["green"].reasons
    assert reason.startswith(f"{topic} is partitioned on blue and has no partitions on green"), reason
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [PARTITIONS_3, 0]
    await on_green.delete(f"/{topic.path}", force=True)
    await exchange.run(snapshot=True)
    assert await partitions(on_green, topic) == PARTITIONS_3


@pytest.mark.long
async def test_topics_that_take_no_part_are_left_out(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    plain, carried = TopicName(shared, "plain"), TopicName(shared, "carried")
    fleeting = TopicName(shared, "fleeting", persistent=False)
    shadow = TopicName(shared, "shadow")
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    await on_blue.post(f"/namespaces/{shared.path}/retention", forever)
    await on_blue.create_topic(plain)
    for topic in (carried, fleeting):
        await on_blue.create_partitioned_topic(topic, 2)
    await on_blue.create_partitioned_topic(shadow, 2, {SHADOW_SOURCE: str(carried)})
    summary = await exchange.run()
    assert [tally.reasons for tally in summary.clusters.values()] == [[], []]
    assert await on_green.partitioned_topics(shared) == (carried,)
    assert [str(topic.parent) for topic in await on_green.topics(shared) if topic.parent != carried] == []


@pytest.mark.long
async def test_without_the_setting_no_topic_is_created_and_none_is_read(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await on_blue.create_partitioned_topic(TopicName(shared, "orders"), 2)
    await exchange.settle(partitioned_topics=False)
    assert await on_green.partitioned_topics(shared) == ()
    await exchange.run()
    assert await on_green.partitioned_topics(shared) == (TopicName(shared, "orders"),)


@pytest.mark.long
async def test_a_schema_history_that_differs_is_refused_and_not_rewritten(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    topic = TopicName(shared, "orders")
    for admin, field in ((on_blue, "blue"), (on_green, "green")):
        await admin.create_partitioned_topic(topic, 2)
        await admin.post_schema(topic, record(field))
    summary = await exchange.run()
    reasons = [reason for tally in summary.clusters.values() for reason in tally.reasons]
    assert any("another schema history" in reason for reason in reasons), reasons
    assert ["blue" in text for admin in (on_blue, on_green) for text in await schemas(admin, topic)] == [True, False]


@pytest.mark.long
async def test_brokers_and_events_work_together_on_a_replicated_namespace(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    topic, both = TopicName(shared, "orders"), ["blue", "green"]
    for admin in (on_blue, on_green):
        await admin.post(f"/tenants/{shared.tenant}", {"adminRoles": [], "allowedClusters": both})
        await admin.post(f"/namespaces/{shared.path}/replication", both)
    await exchange.settle()
    await on_blue.put(f"/{topic.path}/partitions", 3)
    await exchange.settle()
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [3, 3]
    await on_green.post(f"/{topic.path}/partitions", 5)
    await exchange.settle()
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [5, 5]
    assert exchange.dead_letters(exchange.connections[0]) == exchange.dead_letters(exchange.connections[1]) == []
    for admin, own in ((on_blue, "blue"), (on_green, "green")):
        await admin.post(f"/namespaces/{shared.path}/replication", [own])
