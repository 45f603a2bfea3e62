"""Serving read-only on two brokers with tokens, authorization and TLS: rights, traffic, the death of a broker."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.kinds import StartClusters
from tests.support.replication import make_alone
from tests.support.shadows import carry_out, plan_of

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.preflight.findings import blockers
from pulsar_fleet.read_only.upkeep.follow import follow_sources
from pulsar_sandbox import Cluster

pytestmark = pytest.mark.long  # A cluster of two brokers of its own, one of which dies under traffic.

PARTITIONS = 4
STORED = 80
SECONDS = float(os.environ.get("PULSAR_FLEET_SERVING_SECONDS", "0"))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Cluster]:
    with start_clusters(tmp_path_factory.mktemp("wide"), clusters=("wide",), brokers=2, secure=True) as sandbox:
        yield sandbox["wide"]


@pytest.fixture
def connection(wide: Cluster) -> ClusterConnection:
    return ClusterConnection(
        name="wide",
        admin_url=wide.admin_url_tls,
        service_url=wide.service_url_tls,
        tls_trust_file=wide.trust_file,
        token=wide.token(),
    )


@pytest.fixture
async def admin(connection: ClusterConnection) -> AsyncIterator[AdminClient]:
    async with AdminClient(connection) as admin:
        yield admin


async def make(admin: AdminClient, tenant: str) -> TopicName:
    source = TopicName(NamespaceName(tenant, "source"), "events")
    await make_alone(admin, source.namespace)
    await admin.delete(f"/namespaces/{source.namespace.path}/retention")
    for role, actions in (("producer", ["produce"]), ("consumer", ["consume"])):
        await admin.post(f"/namespaces/{source.namespace.path}/permissions/{role}", actions)
    await admin.create_partitioned_topic(source, PARTITIONS)
    await admin.create_subscription(source, "owner")
    await asyncio.to_thread(publish, admin.connection, source, STORED)
    await admin.put(f"/{source.path}/unload")
    return source


def publish(connection: ClusterConnection, topic: TopicName, count: int) -> None:
    client = open_client(connection)
    producer = client.create_producer(str(topic))
    for number in range(count):
        producer.send(f"message {number}".encode())
    client.close()


def received(connection: ClusterConnection, topic: TopicName, subscription: str) -> int:
    """The number of different messages that a consumer gets until none comes for four seconds."""
    client, payloads = open_client(connection), set()
    try:
        consumer = client.subscribe(str(topic), subscription, initial_position=pulsar.InitialPosition.Earliest)
        while True:
            payloads.add(consumer.receive(timeout_millis=4000).data())
    except pulsar.Timeout:
        return len(payloads)
    finally:
        client.close()


async def run(admin: AdminClient, source: TopicName, **settings: Any) -> TopicName:
    readers = NamespaceName(source.namespace.tenant, "readers")
    conf = {"topics": [str(source)], "namespace": str(readers), **settings}
    await plan_and_do(admin, conf, "remove" if conf.get("remove") else "serve")
    return TopicName(readers, source.local)


async def plan_and_do(admin: AdminClient, conf: JsonObject, name: str) -> None:
    record = Run.open(f"serve/{conf['namespace']}/{name}")
    planned = await plan_of(admin, conf)
    assert not blockers(planned.findings), planned.findings
    await carry_out(admin, planned, record)


async def test_who_may_consume_reads_and_nobody_else_may_produce(
    admin: AdminClient, wide: Cluster, connection: ClusterConnection, records: Path
) -> None:
    source = await make(admin, "rights")
    shadow = await run(admin, source)
    consumer, producer = (replace(connection, token=wide.token(role)) for role in ("consumer", "producer"))
    assert await asyncio.to_thread(received, consumer, shadow, "reader") == STORED
    for role in (consumer, producer):
        client = open_client(role)
        with pytest.raises(pulsar.AuthorizationError):
            await asyncio.to_thread(client.create_producer, str(shadow))
        client.close()


async def make_topic(admin: AdminClient, topic: TopicName, *, reader: str, partitions: int = 0) -> TopicName:
    """A topic of a namespace from which this role may consume."""
    await make_alone(admin, topic.namespace)
    await admin.post(f"/namespaces/{topic.namespace.path}/permissions/{reader}", ["consume"])
    await (admin.create_partitioned_topic(topic, partitions) if partitions else admin.create_topic(topic))
    await asyncio.to_thread(publish, admin.connection, topic, STORED)
    await admin.put(f"/{topic.path}/unload")
    return topic


async def serve_topics(admin: AdminClient, name: str, *topics: TopicName) -> dict[TopicName, TopicName]:
    """Serve topics in one namespace; source → shadow topic."""
    readers = NamespaceName(topics[0].namespace.tenant, "readers")
    await plan_and_do(admin, {"topics": list(map(str, topics)), "namespace": str(readers)}, name)
    return {topic: TopicName(readers, topic.local) for topic in topics}


async def reads(connection: ClusterConnection, token: str, topic: TopicName) -> bool:
    """Whether a role gets every message; False where it is refused."""
    try:
        return await asyncio.to_thread(received, replace(connection, token=token), topic, f"of-{token[-6:]}") == STORED
    except pulsar.AuthorizationError:
        return False


async def readers_of(connection: ClusterConnection, wide: Cluster, topic: TopicName) -> set[str]:
    roles = ("consumer", "nobody", "producer")
    return {role for role in roles if await reads(connection, wide.token(role), topic)}


async def test_who_may_consume_from_one_source_reads_no_other_one(
    admin: AdminClient, wide: Cluster, connection: ClusterConnection, records: Path
) -> None:
    orders = await make_topic(admin, TopicName(NamespaceName("apart", "orders"), "events"), reader="consumer")
    payroll = TopicName(NamespaceName("apart", "payroll"), "salaries")
    await make_topic(admin, payroll, reader="nobody", partitions=2)
    await admin.post(f"/{payroll.path}/permissions/producer", ["consume"])
    shadows = await serve_topics(admin, "both", orders, payroll)
    assert await readers_of(connection, wide, shadows[orders]) == {"consumer"}
    assert await readers_of(connection, wide, shadows[payroll]) == {"nobody", "producer"}


async def test_a_source_that_is_served_later_is_not_read_by_the_readers_before(
    admin: AdminClient, wide: Cluster, connection: ClusterConnection, records: Path
) -> None:
    orders = await make_topic(admin, TopicName(NamespaceName("later", "orders"), "events"), reader="consumer")
    payroll = await make_topic(admin, TopicName(NamespaceName("later", "payroll"), "salaries"), reader="nobody")
    shadows = await serve_topics(admin, "first", orders)
    document = await admin.namespace(shadows[orders].namespace) or {}
    assert document["auth_policies"]["namespace_auth"] == {"consumer": ["consume"]}
    shadows |= await serve_topics(admin, "second", payroll)
    document = await admin.namespace(shadows[orders].namespace) or {}
    assert document["auth_policies"]["namespace_auth"] == {}
    assert await readers_of(connection, wide, shadows[orders]) == {"consumer"}
    assert await readers_of(connection, wide, shadows[payroll]) == {"nobody"}

    # The watch gives a role what it may read at the source, and nothing of another one.
    await admin.post(f"/namespaces/{payroll.namespace.path}/permissions/producer", ["consume"])
    record = Run.open("watch/later")
    assert (await follow_sources(admin, shadows[orders].namespace, 60, record)).changes == 1
    assert await readers_of(connection, wide, shadows[orders]) == {"consumer"}
    assert await readers_of(connection, wide, shadows[payroll]) == {"nobody", "producer"}
    assert (await follow_sources(admin, shadows[orders].namespace, 60, record)).changes == 0


async def test_the_owner_gets_every_message_through_roll_overs_trims_and_a_kill(
    admin: AdminClient, wide: Cluster, connection: ClusterConnection, records: Path
) -> None:
    source = await make(admin, "traffic")
    shadow = await run(admin, source)
    stop, sent = threading.Event(), 0

    def write() -> None:
        nonlocal sent
        client = open_client(connection)
        producer = client.create_producer(str(source), send_timeout_millis=0)
        while not stop.is_set():
            producer.send(f"later {sent}".encode())
            sent += 1
            stop.wait(0.02)
        client.close()

    writing = asyncio.create_task(asyncio.to_thread(write))
    try:
        end, rounds = time.monotonic() + SECONDS, 0
        while time.monotonic() < end or rounds < 6:
            rounds += 1
            if rounds == 4:
                wide.kill(1)
            for topic in (source, *shadow.partitions(PARTITIONS)):
                # While the death of a broker is noticed, its topics cannot be reached.
                await patiently(admin, f"/{topic.path}/unload", "PUT")
            for topic in shadow.partitions(PARTITIONS):
                await patiently(admin, f"/{topic.path}/trim", "POST")
            await asyncio.sleep(1)
        wide.restart(1)
    finally:
        stop.set()
        await writing
    assert sent > 100
    await admin.put(f"/{source.path}/unload")
    assert await asyncio.to_thread(received, connection, source, "owner") == STORED + sent
    # The last entry of an open ledger may come to a shadow topic only with the next one.
    assert await asyncio.to_thread(received, connection, shadow, "reader") >= STORED + sent - PARTITIONS
    await run(admin, source, remove=True)
    assert await admin.namespace(shadow.namespace) is None
    await admin.put(f"/{source.path}/unload")
    assert await asyncio.to_thread(received, connection, source, "owner") == STORED + sent


async def patiently(admin: AdminClient, path: str, method: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await (admin.put(path) if method == "PUT" else admin.post(path))
            except FleetError:
                await asyncio.sleep(0.5)
            else:
                return
