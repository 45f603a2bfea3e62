"""The doctor on real clusters whose brokers do not reach each other: addresses, TLS, credentials, an outage.

Also clusters whose versions differ in what their replicators create.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.support.doctor_bad_states import topic_of
from tests.support.doctor_world import FOREVER, World, arrived, filled, know_all, set_peer, world_of
from tests.support.fleets import connection
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.replication.doctor.model import Examination, Severity
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
OLD = {"older": "4.0.7", "oldest": "3.0.7"}
NOWHERE = {"serviceUrl": "http://127.0.0.1:9", "brokerServiceUrl": "pulsar://127.0.0.1:9"}
PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("plain"), clusters=("north", "south", "west")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("secure"), clusters=("vault",), secure=True) as sandbox:
        yield sandbox


@pytest.fixture
async def world(plain: Sandbox) -> AsyncIterator[World]:
    async with world_of([connection(cluster) for cluster in plain]) as world:
        await know_all(world)
        yield world


@pytest.fixture
def vault(secure: Sandbox) -> ClusterConnection:
    cluster = secure["vault"]
    return ClusterConnection(
        name="vault",
        admin_url=cluster.admin_url_tls,
        service_url=cluster.service_url_tls,
        tls_trust_file=cluster.trust_file,
        token=cluster.token(),
    )


def faults(examination: Examination) -> set[str]:
    return {row.id for row in examination.by(Severity.FAULT)}


def _tls(secure: Sandbox) -> Json:
    cluster = secure["vault"]
    addresses = {"serviceUrlTls": cluster.admin_url_tls, "brokerServiceUrlTls": cluster.service_url_tls}
    return {**addresses, "brokerClientTlsEnabled": True}


def _data(secure: Sandbox, id_: str) -> Json:
    """The data of vault, wrong by this diagnosis."""
    cluster = secure["vault"]
    token = {"authenticationPlugin": PLUGIN, "authenticationParameters": f"token:{cluster.token('broker')}"}
    trust = {"brokerClientTrustCertsFilePath": cluster.trust_file}
    if id_ == "tls-untrusted":
        return _tls(secure) | token
    if id_ == "credentials-missing":
        return _tls(secure) | trust
    if id_ == "credentials-refused":
        return _tls(secure) | trust | token | {"authenticationParameters": "token:abc.def.ghi"}
    if id_ == "tls-required":
        plain = {"serviceUrl": cluster.admin_url_tls, "brokerServiceUrl": cluster.service_url_tls}
        return {key: url.replace("https:", "http:").replace("+ssl", "") for key, url in plain.items()} | token
    return _tls(secure) | trust | token


async def _replicate_to_vault(world: World, vault: ClusterConnection, state: str) -> NamespaceName:
    name = await world.make(state, "north", allowed=["vault"])
    async with AdminClient(vault) as admin:
        await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["vault"]})
        await admin.put_namespace(name, {"replication_clusters": ["vault"], "retention_policies": FOREVER})
    await world.create(topic_of(name), "north")
    await world.replicate(name, "north", "vault", on=["north"])
    await world.waiting(topic_of(name), "north", "vault")
    await world.send("north", topic_of(name))
    return name


SECURE = ("tls-untrusted", "credentials-missing", "credentials-refused", "tls-required")


@pytest.mark.parametrize("id_", ["healthy", *SECURE])
async def test_a_peer_with_tls_and_credentials_is_linked_by_call_and_restart(
    world: World, plain: Sandbox, secure: Sandbox, vault: ClusterConnection, id_: str
) -> None:
    """A person fills in the files and the credentials, which the call names; what was right before is kept."""
    await set_peer(world.admins["north"], "vault", _data(secure, id_))
    name = await _replicate_to_vault(world, vault, id_)
    world.admins = {"north": world.admins["north"]}
    settings: Json = {"others": [vault], "receive_only": frozenset({"vault"})}
    examination = await world.examine(id_, **settings)
    assert faults(examination) == ({id_} - {"healthy"}), examination.diagnoses
    assert vault.token is not None
    assert vault.token not in str(examination.to_json())
    assert secure["vault"].token("broker") not in str(examination.to_json())
    for fault in examination.faults:
        assert not fault.automatic
        assert "restart" in fault.remedy
        await world.send_calls(filled(fault.calls, _data(secure, "healthy")))
        await asyncio.to_thread(plain["north"].restart)
    await world.linked(topic_of(name), target="vault")
    after = await world.examine(id_, **settings)
    assert (faults(after), after.has_fault) == (set(), False), after.diagnoses
    assert await arrived(vault, topic_of(name)) == 5


async def _send_to(world: World, state: str, target: str) -> NamespaceName:
    name = await world.make(state, "north", target)
    await world.create(topic_of(name), "north")
    await world.replicate(name, "north", target, on=["north"])
    await world.waiting(topic_of(name), "north", target)
    await world.send("north", topic_of(name))
    return name


async def test_data_of_another_cluster_is_corrected_by_call_and_restart(world: World, plain: Sandbox) -> None:
    north = world.admins["north"]
    await set_peer(north, "south", world.admins["west"].connection.cluster_data())
    name = await _send_to(world, "wrong-cluster", "south")
    before = await world.examine("wrong-cluster", receive_only=frozenset({"south"}))
    assert faults(before) == {"cluster-data-wrong"}
    (wrong,) = before.faults
    await world.send_calls(wrong.calls)
    await asyncio.to_thread(plain["north"].restart)
    await world.linked(topic_of(name))
    assert not (await world.examine("wrong-cluster", receive_only=frozenset({"south"}))).has_fault
    assert await arrived(world.admins["south"].connection, topic_of(name)) == 5


async def test_data_that_leads_nowhere_is_corrected_by_the_call_and_a_restart(world: World, plain: Sandbox) -> None:
    await set_peer(world.admins["north"], "south", NOWHERE)
    name = await _send_to(world, "nowhere", "south")
    before = await world.examine("nowhere", receive_only=frozenset({"south"}))
    assert faults(before) == {"cluster-data-unreachable"}
    (dead,) = before.faults
    await world.send_calls(dead.calls)
    await asyncio.to_thread(plain["north"].restart)
    await world.linked(topic_of(name))
    assert not (await world.examine("nowhere", receive_only=frozenset({"south"}))).has_fault
    assert await arrived(world.admins["south"].connection, topic_of(name)) == 5


async def test_a_cluster_that_is_down_also_blocks_replicated_subscriptions(world: World, plain: Sandbox) -> None:
    name = await world.make("outage", "north", "south", "west")
    topic = topic_of(name)
    await world.create(topic, "north", "south", "west")
    await world.replicate(name, "north", "south", "west")
    await world.consume("north", topic, replicate_subscription_state_enabled=True)
    for target in ("south", "west"):
        await world.waiting(topic, "north", target)
    await world.send("north", topic)
    await world.linked(topic, target="west")
    await asyncio.to_thread(plain["west"].kill)
    await world.send("north", topic)
    try:
        examination = await world.examine("outage")
        assert faults(examination) == {"target-unreachable"}
        warnings = {row.id for row in examination.by(Severity.WARNING)}
        assert warnings == {"replicated-subscriptions-blocked"}
        assert examination.has_fault
    finally:
        await asyncio.to_thread(plain["west"].restart)
    await world.linked(topic, target="west")
    assert not (await world.examine("outage")).has_fault
    counts = [await arrived(world.admins[name].connection, topic) for name in ("south", "west")]
    assert counts == [10, 10]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """The newest one creates topics on targets; the others do not."""
    folder = tmp_path_factory.mktemp("versions")
    with start_clusters(folder, clusters=("newest", "older", "oldest"), version=OLD) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("source", "target", "creation", "partitions", "id_"),
    [
        ("newest", "oldest", False, 0, ""),
        ("newest", "oldest", False, 2, ""),
        ("older", "newest", False, 0, "topic-missing"),
        ("oldest", "newest", False, 2, "topic-missing"),
        ("older", "newest", True, 2, "topic-missing"),
        ("oldest", "newest", True, 0, ""),
        ("older", "oldest", False, 2, "topic-missing"),
        ("older", "oldest", True, 2, "partitions-without-topic"),
        ("oldest", "older", True, 2, "partitions-without-topic"),
    ],
)
async def test_what_replicators_of_old_brokers_do_not_create_is_named(
    versions: Sandbox, source: str, target: str, creation: bool, partitions: int, id_: str
) -> None:
    async with world_of([connection(versions[name]) for name in (source, target)]) as world:
        await know_all(world)
        name = await world.make("created", source, target)
        topic = topic_of(name)
        if not creation:
            off = {"allowAutoTopicCreation": False}
            await world.admins[target].post(f"/namespaces/{name.path}/autoTopicCreation", off)
        await world.create(topic, source, partitions=partitions)
        await world.replicate(name, source, target, on=[source])
        await world.send(source, topic)
        settings: Json = {"receive_only": frozenset({target}), "connect_seconds": 60.0}
        before = await world.examine("created", **settings)
        assert faults(before) == ({id_} if id_ else set()), before.diagnoses
        if id_ == "topic-missing":
            await world.send_calls(before.faults[0].calls)
            for unit in topic.partitions(partitions):
                await world.linked(unit, source, target)
            assert not faults(await world.examine("created", **settings))
