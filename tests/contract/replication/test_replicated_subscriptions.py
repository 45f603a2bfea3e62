"""Replicated subscriptions beside a third cluster: positions are copied while every cluster of the list answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from pulsar.schema import AvroSchema
from tests.support.data_centres import finding_ids, findings_text, plan, replicate, request_of
from tests.support.doctor_bad_states import First, Other
from tests.support.doctor_world import World, know_all, world_of
from tests.support.fleets import connection
from tests.support.kinds import StartClusters
from tests.support.replicated_applications import Application
from tests.support.replication import FOREVER

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.doctor.model import Examination, Severity
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.replication.doctor.steps import examine
from pulsar_fleet.replication.failover.report import Addresses, forecast_text
from pulsar_fleet.replication.failover.steps import forecast_failover
from pulsar_sandbox import Sandbox

NAMES = ("north", "south", "west")
STOP = "replicated-subscriptions-stop"
WAIVER = {"id": STOP, "who": "a test", "why": "to see what happens"}
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("subscriptions"), clusters=NAMES) as sandbox:
        yield sandbox


@pytest.fixture
def clusters(sandbox: Sandbox, records: Path) -> dict[str, ClusterConnection]:
    return {cluster.name: connection(cluster) for cluster in sandbox}


@pytest.fixture
async def world(clusters: dict[str, ClusterConnection]) -> AsyncIterator[World]:
    async with world_of(list(clusters.values())) as world:
        await know_all(world)
        yield world


async def make_topic(world: World, namespace: NamespaceName, *names: str) -> TopicName:
    for name in names:
        admin = world.admins[name]
        await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": list(NAMES)})
        await admin.put_namespace(namespace, {"replication_clusters": [name], "retention_policies": FOREVER})
        await admin.create_topic(TopicName(namespace, "t"))
    return TopicName(namespace, "t")


async def work(world: World, topic: TopicName, *, seconds: float, moves: bool) -> str | None:
    """Publish and acknowledge on north, until the position on south moves, or for this time; the position on south."""
    application, before = Application(topic, "app"), await position(world, topic)

    def some() -> None:
        producer, consumer = world.clients["north"].create_producer(str(topic)), application.subscribe(north)
        for number in range(20):
            producer.send(f"m{number}".encode())
            consumer.acknowledge(consumer.receive(10_000))
            time.sleep(0.02)
        producer.close()
        consumer.close()

    north, end = world.clients["north"], time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.to_thread(some)
        if moves and await position(world, topic) != before:
            break
    return await position(world, topic)


async def position(world: World, topic: TopicName) -> str | None:
    cursor = (await world.admins["south"].internal_stats(topic))["cursors"].get("app") or {}
    return cursor.get("markDeletePosition")


async def doctor(
    clusters: dict[str, ClusterConnection], topic: TopicName, *names: str, **settings: Json
) -> Examination:
    request = Request(selection=Selection(namespaces=frozenset({topic.namespace})), **settings)
    return await examine([clusters[name] for name in names], request)


def ids(examination: Examination, severity: Severity) -> set[str]:
    return {row.id for row in examination.by(severity)}


async def forecast(clusters: dict[str, ClusterConnection], topic: TopicName, run_id: str) -> str:
    run = Run.open(run_id)
    run.ledger.start_run(run.id, "forecast_failover", {})
    selection = Selection(namespaces=frozenset({topic.namespace}))
    result = await forecast_failover(clusters["north"], clusters["south"], selection, run)
    return forecast_text(result, Addresses(origin="north", target="south", run=run_id))


@pytest.mark.parametrize("by", ["namespaces", "topics"])
async def test_a_third_cluster_that_only_receives_is_refused_and_named(
    world: World,
    clusters: dict[str, ClusterConnection],
    new_namespace: Callable[[], NamespaceName],
    by: str,
) -> None:
    topic = await make_topic(world, new_namespace(), "north", "south")
    what: dict[str, Json] = {by: [str(topic.namespace if by == "namespaces" else topic)]}
    await replicate(clusters, request_of("north", "south", replicated_subscriptions=True, **what), f"two-{by}")
    assert await work(world, topic, seconds=60, moves=True)
    assert ids(await doctor(clusters, topic, "north", "south"), Severity.FAULT) == set()

    settings: dict[str, Json] = {"receive_only": ["west"], **what}
    refused = await plan(clusters, request_of("north", "south", **settings), f"refused-{by}")
    assert len(refused.blockers) == 2, findings_text(refused)
    assert STOP in finding_ids(refused)
    await replicate(clusters, request_of("north", "south", waivers=[WAIVER], **settings), f"waived-{by}")
    stopped = await work(world, topic, seconds=2, moves=False)
    assert await work(world, topic, seconds=10, moves=False) == stopped

    for names, receive_only in (NAMES, {"west"}), (NAMES[:2], set()):
        examination = await doctor(clusters, topic, *names, receive_only=frozenset(receive_only))
        assert ids(examination, Severity.FAULT) == {"replicated-subscriptions-unanswered"}, examination.diagnoses
        assert {row.target for row in examination.faults} == {"west"}
    assert "west does not replicate back to north" in await forecast(clusters, topic, f"forecast-{by}")

    # What is there already is no reason to refuse a run that changes nothing of it.
    again = await plan(clusters, request_of("north", "south", **settings), f"again-{by}")
    assert (again.plan.changes, again.blockers) == (0, ()), findings_text(again)

    members = await replicate(clusters, request_of(*NAMES, **what), f"three-{by}")
    assert STOP not in finding_ids(members)
    assert await work(world, topic, seconds=60, moves=True) != stopped
    assert ids(await doctor(clusters, topic, *NAMES), Severity.FAULT) == set()
    assert "does not replicate back" not in await forecast(clusters, topic, f"moves-{by}")


async def test_a_replicator_back_that_stands_still_stops_the_positions_too(
    world: World, clusters: dict[str, ClusterConnection], new_namespace: Callable[[], NamespaceName]
) -> None:
    """A schema of west holds its replicators, while those to west work."""
    topic = await make_topic(world, new_namespace(), *NAMES)
    strategy = f"/namespaces/{topic.namespace.path}/schemaCompatibilityStrategy"
    await world.admins["west"].put(strategy, "ALWAYS_COMPATIBLE")
    await world.send("north", topic, schema=AvroSchema(First), value=First(name="a"), count=1)
    await world.replicate(topic.namespace, *NAMES)
    await world.linked(topic, "north", "west")
    await world.linked(topic, "west", "north")
    await world.send("west", topic, schema=AvroSchema(Other), value=Other(name=1), count=3)
    async with asyncio.timeout(60):
        while not (await world.admins["west"].stats(topic))["replication"]["north"]["replicationBacklog"]:
            await asyncio.sleep(0.2)
    stopped = await work_without_schema(world, topic)
    assert stopped is None

    examination = await doctor(clusters, topic, *NAMES)
    blocked = [row for row in examination.diagnoses if row.id == "replicated-subscriptions-blocked"]
    assert {(row.source, row.target) for row in blocked} >= {("north", "west")}, examination.diagnoses
    assert "when west has answered too" in await forecast(clusters, topic, "forecast-held")


async def work_without_schema(world: World, topic: TopicName) -> str | None:
    """Acknowledge messages of the schema on north for some seconds; the position on south."""
    application = Application(topic, "app")

    def some() -> None:
        producer = world.clients["north"].create_producer(str(topic), schema=AvroSchema(First))
        consumer = application.subscribe(world.clients["north"])
        end = time.monotonic() + 10
        while time.monotonic() < end:
            producer.send(First(name="b"))
            consumer.acknowledge(consumer.receive(10_000))
            time.sleep(0.02)
        producer.close()
        consumer.close()

    await asyncio.to_thread(some)
    return await position(world, topic)
