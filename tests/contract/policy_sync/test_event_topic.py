"""The event topic as the brokers have it: its schema, its compaction, and who takes over its events."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pulsar
import pytest
from tests.support.event_exchange import Exchange, becomes
from tests.support.reconciler import MAX_PRODUCERS, held, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import STORE_OF
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.ledger.event_store import EventStore
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.policy_sync.events.event import SCHEMA
from pulsar_fleet.policy_sync.events.request import SUBSCRIPTION
from pulsar_fleet.report.metadata import metadata_report

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

log = logging.getLogger(__name__)

NewNamespace = Callable[[], NamespaceName]
TAKEN_OVER_SECONDS = 15.0
"""What the page promises after a kill; it is measured in the log of the test."""


@pytest.fixture
async def shared(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> NamespaceName:
    name = new_namespace()
    await make_namespaces([name, NamespaceName(name.tenant, "payments")], on_blue, on_green)
    return name


async def test_the_schema_of_the_events_is_registered_and_brokers_refuse_another(
    on_blue: AdminClient, on_green: AdminClient, exchange: Exchange
) -> None:
    topic = exchange.request.event_topic
    for admin in (on_blue, on_green):
        registered = await admin.get(f"/schemas/{topic.namespace.path}/{topic.local}/schema")
        assert registered["type"] == "AVRO"
        assert json.loads(registered["data"]) == SCHEMA
    other = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    for wrong in (pulsar.schema.StringSchema(), pulsar.schema.AvroSchema(None, schema_definition=other)):
        for connection in exchange.connections:
            client = open_client(connection)
            with pytest.raises(pulsar.PulsarException, match=r"(?i)incompatibleschema"):
                client.create_producer(str(topic), schema=wrong)
            client.close()


async def test_every_cluster_compacts_and_keeps_the_events_by_policy(
    on_blue: AdminClient, on_green: AdminClient, exchange: Exchange
) -> None:
    for admin in (on_blue, on_green):
        policies = await admin.namespace(exchange.request.event_topic.namespace) or {}
        assert policies["compaction_threshold"] == 1_048_576
        assert policies["retention_policies"] == {"retentionTimeInMinutes": 10_080, "retentionSizeInMB": 512}


async def test_each_store_names_its_cluster_and_another_one_is_refused(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    namespace = exchange.request.event_topic.namespace
    for admin, own in ((on_blue, "blue"), (on_green, "green")):
        assert (await admin.namespace(namespace) or {})["properties"] == {STORE_OF: own}
    # As a cluster sees it whose store another cluster took part with.
    await on_green.put(f"/namespaces/{namespace.path}/properties", {STORE_OF: "red"})
    for connections in (exchange.connections, exchange.connections[1:]):
        with pytest.raises(InvalidRequest, match=r"^Cluster green shares a configuration store with red, which takes"):
            await Exchange(connections, exchange.request).run()
    await Exchange(exchange.connections[:1], exchange.request).run()


@pytest.mark.long
async def test_what_a_producer_without_a_schema_writes_is_dead_lettered(exchange: Exchange) -> None:
    exchange.send(exchange.connections[0], b"\x00 not an event")
    result = await exchange.run()
    assert [tally.refused for tally in result.clusters.values()] == [1, 1]
    for connection in exchange.connections:
        (letter,) = exchange.dead_letters(connection)
        assert "not a MetadataChangeEvent" in letter["reason"]


@pytest.mark.long
async def test_a_snapshot_compacts_the_topic_to_one_event_for_each_resource(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    topic = exchange.request.event_topic
    for value in range(1, 6):
        await set_policy(on_blue, shared, MAX_PRODUCERS[0], value)
        await exchange.run()
    await exchange.run(snapshot=True)
    for admin in (on_blue, on_green):
        assert (await admin.get(f"/{topic.path}/compaction"))["status"] in ("SUCCESS", "RUNNING")
    # The events of the other cluster arrived while the topic was compacted: once more, when nothing is under way.
    await exchange.settle()
    for admin, connection in zip((on_blue, on_green), exchange.connections, strict=True):
        await becomes(partial(_compaction, admin, f"/{topic.path}/compaction"), "SUCCESS")
        written = await asyncio.to_thread(_keys, connection, str(topic), compacted=False)
        await admin.put(f"/{topic.path}/compaction")
        await becomes(partial(_compaction, admin, f"/{topic.path}/compaction"), "SUCCESS")
        kept = await asyncio.to_thread(_keys, connection, str(topic), compacted=True)
        names = [f"Namespaces/{shared}", f"Namespaces/{shared.tenant}/payments", f"Tenants/{shared.tenant}"]
        assert sorted(kept) == sorted(names)
        assert len(written) >= 5 + 2 * len(names)


async def test_runs_publish_a_snapshot_after_its_minutes_and_not_before(
    shared: NamespaceName, exchange: Exchange
) -> None:
    await exchange.settle(snapshot_minutes=30)
    published = {}
    for minutes in (20, 10):
        let_pass(exchange, minutes)
        result = await exchange.run(snapshot_minutes=30)
        published[minutes] = [tally.published for tally in result.clusters.values()]
    # Its tenant and both namespaces.
    assert published == {20: [0, 0], 10: [3, 3]}


def let_pass(exchange: Exchange, minutes: int) -> None:
    """Make the last snapshot of each cluster so much older."""
    stored = EventStore(Ledger.open(), str(exchange.request.event_topic), "*")
    last = stored.load(kind="snapshot")
    assert len(last) == 2
    older = {key: replace(mark, document={"at": mark.document["at"] - minutes * 60_000}) for key, mark in last.items()}
    assert stored.save(older)


async def _compaction(admin: AdminClient, path: str) -> str:
    return str((await admin.get(path))["status"])


def _keys(connection: ClusterConnection, topic: str, *, compacted: bool) -> list[str]:
    client = open_client(connection)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=compacted)
    keys = []
    while reader.has_message_available():
        keys.append(reader.read_next(5000).partition_key())
    client.close()
    return keys


@pytest.mark.long
async def test_the_last_update_of_a_tenant_is_in_the_page_of_a_run(
    on_blue: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    before = time.time()
    await on_blue.post(f"/tenants/{shared.tenant}", {"adminRoles": ["owner"], "allowedClusters": ["blue"]})
    result = await exchange.run()
    update = result.tenants[shared.tenant]
    assert update.by == "blue"
    assert before - 1 <= update.time / 1000 <= time.time() + 1
    assert f"| {shared.tenant} | blue | " in metadata_report(result).markdown()


@pytest.mark.long
async def test_the_next_follower_applies_events_soon_after_a_kill(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, records: Path
) -> None:
    with exchange.follower(records) as first:
        await set_policy(on_blue, shared, MAX_PRODUCERS[0], 1)
        await becomes(partial(held, on_green, shared, (MAX_PRODUCERS[1],)), {MAX_PRODUCERS[1]: 1})
        of_first = await _active(on_green, exchange)
        with exchange.follower(records) as second:
            active = first if await _active(on_green, exchange) == of_first else second
            active.kill()
            killed = time.monotonic()
            await set_policy(on_blue, shared, MAX_PRODUCERS[0], 2)
            await becomes(partial(held, on_green, shared, (MAX_PRODUCERS[1],)), {MAX_PRODUCERS[1]: 2})
            took = time.monotonic() - killed
    log.warning("taken over %.1f s after the kill", took)
    assert took < TAKEN_OVER_SECONDS


async def _active(admin: AdminClient, exchange: Exchange) -> str | None:
    """The consumer to which a cluster gives its events."""
    topic = exchange.request.event_topic
    return TopicStats.of(topic, await admin.stats(topic)).subscriptions[SUBSCRIPTION].active_consumer
