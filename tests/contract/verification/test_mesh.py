"""Clusters that replicate to each other are compared while all of them publish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.data_centres import Traffic, make_origin, replicate, request_of

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.coverage import Coverage, Mode
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import EntryMapping
from pulsar_fleet.verification.steps import freeze_bounds, record, verify_in_process

pytestmark = pytest.mark.versions

Connections = dict[str, ClusterConnection]


@pytest.fixture
def connections(blue: ClusterConnection, green: ClusterConnection, records: Path) -> Connections:
    return {"blue": blue, "green": green}


async def verify(
    source: AdminClient,
    target: AdminClient,
    namespace: NamespaceName,
    run_id: str,
    mode: Mode = Mode.FULL,
    engine: EngineChoice = EngineChoice.AUTO,
) -> Verification:
    run = Run.open(run_id)
    run.ledger.start_run(run.id, "verify_clusters", {})
    request = await freeze_bounds(
        source, target, [namespace], mapping=EntryMapping.MESH, coverage=Coverage(mode=mode), run=run, engine=engine
    )
    verification = await verify_in_process(source, target, request)
    record(run, verification)
    return verification


def read(verification: Verification) -> int:
    return sum(topic.source_messages for row in verification.namespaces for topic in row.topics)


@pytest.mark.needs_pulsar("4.0", "the set-up of replication refuses an older cluster as a target")
async def test_both_directions_are_equal_under_traffic_and_so_is_the_tail(
    connections: Connections,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    namespace = new_namespace()
    topics = await make_origin(on_blue, namespace)
    await asyncio.to_thread(publish, connections["blue"], topics[1], "before the link")
    await replicate(connections, request_of("blue", "green", namespaces=[str(namespace)]), "mesh")
    traffic = Traffic(topics)
    for name, connection in connections.items():
        traffic.start(name, connection)
    await asyncio.sleep(3)
    forth = await verify(on_blue, on_green, namespace, "there")
    back = await verify(on_green, on_blue, namespace, "back", engine=EngineChoice.ENTRY)
    assert (forth.verdict, back.verdict) == (Verdict.EQUAL, Verdict.EQUAL), reasons(forth, back)
    assert min(read(forth), read(back)) > 100
    await asyncio.sleep(1)
    await traffic.stop(*connections)
    tail = await verify(on_blue, on_green, namespace, "tail", Mode.INCREMENTAL)
    assert tail.verdict is Verdict.EQUAL
    both = sum(len(traffic.sent(topic, "blue")) for topic in topics)
    assert read(forth) + read(tail) == both

    # A copy that green lacks is named, with its cause: this one was never to be replicated.
    await asyncio.to_thread(publish, connections["blue"], topics[1], "stays", disable_replication=True)
    missing = await verify(on_blue, on_green, namespace, "missing", Mode.INCREMENTAL)
    assert missing.verdict is Verdict.INCONCLUSIVE
    assert ["1 × not for the target" in reason for reason in reasons(missing)] == [True]


def publish(connection: ClusterConnection, topic: TopicName, text: str, **options: bool) -> None:
    client = open_client(connection)
    try:
        client.create_producer(str(topic)).send(text.encode(), **options)
    finally:
        client.close()


def reasons(*verifications: Verification) -> list[str]:
    return [
        topic.reason
        for verification in verifications
        for row in verification.namespaces
        for topic in row.topics
        if topic.reason
    ]
