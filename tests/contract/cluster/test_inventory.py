"""What a snapshot counts and does not copy, on a cluster that renews its statistics each second and offers packages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pulsar
import pytest
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import InventoryState
from pulsar_sandbox.sandbox.clusters import Cluster

pytestmark = [pytest.mark.versions, pytest.mark.long]

REDACTOR = Redactor(b"a key of the tests")
NAME = NamespaceName("acme", "orders")
SETTINGS = {
    "statsUpdateFrequencyInSecs": "1",
    "statsUpdateInitialDelayInSecs": "1",
    "enablePackagesManagement": "true",
    "packagesManagementStorageProvider": (
        "org.apache.pulsar.packages.management.storage.filesystem.FileSystemPackagesStorageProvider"
    ),
}


@pytest.fixture(scope="module")
def offering(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Cluster]:
    """The cluster."""
    folder = tmp_path_factory.mktemp("offering")
    with start_clusters(folder, clusters=("offering",), settings={"offering": SETTINGS}) as sandbox:
        yield sandbox["offering"]


@pytest.fixture
async def admin(offering: Cluster) -> AsyncIterator[AdminClient]:
    """A client for it, and a namespace."""
    connection = ClusterConnection(name="offering", admin_url=offering.admin_url, service_url=offering.service_url)
    async with AdminClient(connection) as client:
        if NAME.tenant not in await client.tenants():
            await client.put(f"/tenants/{NAME.tenant}", {"adminRoles": [], "allowedClusters": ["offering"]})
            await client.put(f"/namespaces/{NAME.path}")
        yield client


async def inventory(admin: AdminClient, kind: str) -> list[InventoryState]:
    snapshot = await collect(admin, Selection(namespaces=frozenset({NAME})), redactor=REDACTOR)
    assert snapshot.complete
    return [item for item in snapshot.inventory if item.kind == kind]


async def test_connected_clients_are_counted_by_version(offering: Cluster, admin: AdminClient) -> None:
    topic = TopicName(NAME, "events")
    await admin.create_topic(topic)
    client = pulsar.Client(offering.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer, producer = client.subscribe(str(topic), "billing"), client.create_producer(str(topic))
    for _ in range(40):
        if clients := await inventory(admin, "client"):
            break
        await asyncio.sleep(0.5)
    producer.close()
    consumer.close()
    client.close()
    assert [(client.namespace, client.name.partition("-v")[0], client.detail) for client in clients] == [
        (str(NAME), "Pulsar-CPP", {"producers": 1, "consumers": 1, "readers": 0})
    ]


async def test_packages_are_listed(offering: Cluster, admin: AdminClient) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            f"{offering.admin_url}/admin/v3/packages/function/{NAME.path}/enrich/v1",
            files={"file": ("enrich.jar", b"content"), "metadata": (None, '{"description":"d"}', "application/json")},
        )
    assert answer.status_code < 300, answer.text
    assert [(package.namespace, package.name) for package in await inventory(admin, "package")] == [
        (str(NAME), "enrich")
    ]
