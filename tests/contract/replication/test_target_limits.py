"""What a target refuses of a replicator: plans name it before any write, and the doctor as the cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest
from tests.contract.preflight.test_bookies import in_group
from tests.support.data_centres import finding_ids, plan, request_of
from tests.support.doctor_world import World, arrived, know_all, world_of
from tests.support.remedies import calls, send

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.replication.doctor.model import Diagnosis, Examination, Severity

DELAYS = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 5000}
ENSEMBLE = {
    "bookkeeperEnsemble": 5,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 0.0,
}
SMALL = 1000


@pytest.fixture
async def world(blue: ClusterConnection, green: ClusterConnection) -> AsyncIterator[World]:
    async with world_of([blue, green]) as world:
        await know_all(world)
        yield world


def faults(examination: Examination, topic: TopicName) -> dict[str, Diagnosis]:
    rows = (row for row in examination.diagnoses if row.severity is Severity.FAULT)
    return {row.id: row for row in rows if row.resource == str(topic)}


async def replicated(world: World, state: str, *, on_both: bool = True) -> TopicName:
    """A topic whose namespace replicates between both clusters."""
    topic = TopicName(await world.make(state), "events")
    await world.create(topic, *(() if on_both else ("blue",)))
    return topic


async def test_the_doctor_names_required_encryption_at_once(world: World) -> None:
    topic = await replicated(world, "encryption-required")
    await world.admins["green"].post(f"/namespaces/{topic.namespace.path}/encryptionRequired", True)
    await world.replicate(topic.namespace, "blue", "green")
    await world.waiting(topic, "blue", "green")
    await world.send("blue", topic)
    examination = await world.examine("encryption-required")
    assert set(faults(examination, topic)) == {"encryption-required"}
    assert examination.seconds < 30


@pytest.mark.long
async def test_the_doctor_names_more_bookies_than_the_target_has(world: World) -> None:
    topic = await replicated(world, "bookies-missing", on_both=False)
    path = f"/namespaces/{topic.namespace.path}/persistence"
    await world.admins["green"].post(path, ENSEMBLE)
    await world.replicate(topic.namespace, "blue", "green")
    await world.waiting(topic, "blue", "green")
    await world.send("blue", topic)
    examination = await world.examine("bookies-missing")
    assert set(faults(examination, topic)) == {"bookies-missing"}


@pytest.mark.long
async def test_the_doctor_names_a_group_of_bookies_without_bookies(world: World) -> None:
    topic = await replicated(world, "bookie-group-missing", on_both=False)
    green, affinity = world.admins["green"], {"bookkeeperAffinityGroupPrimary": "fast"}
    await green.post(f"/namespaces/{topic.namespace.path}/persistence/bookieAffinity", affinity)
    async with in_group(green, "slow"):
        await world.replicate(topic.namespace, "blue", "green")
        await world.waiting(topic, "blue", "green")
        await world.send("blue", topic)
        examination = await world.examine("bookie-group-missing")
    assert set(faults(examination, topic)) == {"bookie-group-missing"}
    await world.linked(topic, "blue", "green")


async def test_the_doctor_names_a_limit_of_topics_on_the_target(world: World) -> None:
    topic = await replicated(world, "too-many-topics", on_both=False)
    green, path = world.admins["green"], f"/namespaces/{topic.namespace.path}/maxTopicsPerNamespace"
    await green.create_topic(TopicName(topic.namespace, "other"))
    await green.post(path, 1)
    await world.replicate(topic.namespace, "blue", "green")
    await world.waiting(topic, "blue", "green")
    await world.send("blue", topic)
    examination = await world.examine("too-many-topics")
    assert set(faults(examination, topic)) == {"too-many-topics"}
    await green.post(path, 0)
    await world.linked(topic, "blue", "green")


def publish(client: pulsar.Client, topic: TopicName, *, delayed: bool = False, size: int = 1) -> None:
    producer = client.create_producer(str(topic), batching_enabled=False)
    producer.send(b"x" * size, **({"deliver_after": timedelta(hours=1)} if delayed else {}))
    producer.close()


# A broker sends what is refused again without a pause, 3,000 times a second (observed, 4.2.4). Beside other tests the
# doctor once needed 84 s, and found no cause.
@pytest.mark.parametrize("what", ["delay", pytest.param("size", marks=pytest.mark.long)])
async def test_the_doctor_names_a_message_that_the_target_refuses(world: World, what: str) -> None:
    state = f"refused-{what}"
    topic = await replicated(world, state)
    namespace, green = f"/namespaces/{topic.namespace.path}", world.admins["green"]
    await world.replicate(topic.namespace, "blue", "green")
    await world.waiting(topic, "blue", "green")
    await world.send("blue", topic)
    await world.linked(topic, "blue", "green")
    limit = f"{namespace}/delayedDelivery" if what == "delay" else f"/{topic.path}/maxMessageSize"
    await green.post(limit, DELAYS if what == "delay" else SMALL)
    await asyncio.sleep(1)
    before = await world.examine(state)
    assert "limit-lower-on-target" in {row.id for row in before.diagnoses}
    assert faults(before, topic) == {}
    await asyncio.to_thread(
        publish, world.clients["blue"], topic, delayed=what == "delay", size=3 * SMALL if what == "size" else 1
    )
    examination = await world.examine(state)
    assert set(faults(examination, topic)) == {"message-refused"}, examination.unread
    assert examination.seconds < 30
    # As the remedy says: the limit goes before more is published, and nothing is lost.
    await green.delete(limit)
    await world.linked(topic, "blue", "green")
    assert await arrived(green.connection, topic) == 6


async def test_what_is_published_after_a_refused_message_replaces_it(world: World) -> None:
    """Why a lower limit is named before any message meets it: nothing shows the loss afterwards."""
    state = "refused-and-lost"
    topic = await replicated(world, state)
    green = world.admins["green"]
    await green.post(f"/namespaces/{topic.namespace.path}/delayedDelivery", DELAYS)
    await world.replicate(topic.namespace, "blue", "green")
    await world.waiting(topic, "blue", "green")
    await asyncio.to_thread(publish, world.clients["blue"], topic, delayed=True)
    await asyncio.sleep(3)
    for size in (2, 3, 4):
        await asyncio.to_thread(publish, world.clients["blue"], topic, size=size)
        await asyncio.sleep(0.3)
    await world.linked(topic, "blue", "green")
    examination = await world.examine(state)
    assert "limit-lower-on-target" in {row.id for row in examination.diagnoses}


@pytest.mark.parametrize(
    ("state", "id_"),
    [
        ("ensemble", "bookies-missing"),
        ("encryption", "replicator-not-encrypted"),
        ("delay", "longest-delay-shorter"),
        ("topics", "too-many-topics"),
    ],
)
async def test_replicate_names_what_the_target_refuses_before_any_write(
    world: World, records: Path, new_namespace: Callable[[], NamespaceName], state: str, id_: str
) -> None:
    namespace = new_namespace()
    topic, path = TopicName(namespace, "events"), f"/namespaces/{namespace.path}"
    blue, green = world.admins["blue"], world.admins["green"]
    await make_namespace(blue, namespace)
    await blue.create_topic(topic)
    if state == "ensemble":
        await blue.post(f"{path}/persistence", ENSEMBLE)
    else:
        await make_namespace(green, namespace)
        await green.create_topic(TopicName(namespace, "other"))
        body = {"encryption": True, "delay": DELAYS, "topics": 1}[state]
        field = {"encryption": "encryptionRequired", "delay": "delayedDelivery", "topics": "maxTopicsPerNamespace"}
        await green.post(f"{path}/{field[state]}", body)
    before = await green.namespace(namespace)
    connections = {name: admin.connection for name, admin in world.admins.items()}
    done = await plan(connections, request_of("blue", "green", namespaces=[str(namespace)]), f"limits-{state}")
    assert id_ in finding_ids(done)
    assert done.blockers
    assert await green.namespace(namespace) == before


async def test_a_resource_group_is_created_by_the_printed_call(
    world: World, records: Path, new_namespace: Callable[[], NamespaceName]
) -> None:
    """A namespace that is created with a group that does not exist is accepted, and nothing limits it."""
    namespace, blue, green = new_namespace(), world.admins["blue"], world.admins["green"]
    group, id_ = f"group-{namespace.tenant}", "resource-group-not-copied"
    await make_namespace(blue, namespace)
    await blue.put(f"/resourcegroups/{group}", {"publishRateInMsgs": 100})
    await blue.post(f"/namespaces/{namespace.path}/resourcegroup/{group}")
    connections = {name: admin.connection for name, admin in world.admins.items()}
    request = request_of("blue", "green", namespaces=[str(namespace)])
    done = await plan(connections, request, "group")
    (finding,) = (row for row in done.planned.findings if row.id == id_)
    for _, call in calls(finding.call):
        await send(green, call)
    assert id_ not in finding_ids(await plan(connections, request, "group-again"))
    assert (await green.get(f"/resourcegroups/{group}"))["publishRateInMsgs"] == 100


async def make_namespace(admin: AdminClient, name: NamespaceName) -> None:
    own = await admin.cluster_name()
    await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "green"]})
    await admin.put_namespace(name, {"replication_clusters": [own]})
