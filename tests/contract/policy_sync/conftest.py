"""Clusters that exchange events of metadata over one tenant, and a third cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange
from tests.support.kinds import StartClusters
from tests.support.reconciler import make_namespaces

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName

NewNamespace = Callable[[], NamespaceName]


@pytest.fixture
async def shared(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> NamespaceName:
    """A namespace that both clusters have, without policies."""
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    return name


@pytest.fixture
async def exchange(
    shared: NamespaceName,
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
) -> AsyncIterator[Exchange]:
    """Events of its tenant, after the clusters have told each other all that they have."""
    new_exchange = Exchange.of(shared.tenant, blue, green)
    await new_exchange.settle()
    yield new_exchange
    await new_exchange.remove(on_blue, on_green)


@pytest.fixture(scope="session")
def red(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[ClusterConnection]:
    """How to reach it; it is started by the first test that asks for it."""
    with start_clusters(tmp_path_factory.mktemp("red") / "sandbox", clusters=("red",)) as sandbox:
        cluster = sandbox["red"]
        yield ClusterConnection(name="red", admin_url=cluster.admin_url, service_url=cluster.service_url)


@pytest.fixture
async def on_red(red: ClusterConnection) -> AsyncIterator[AdminClient]:
    """Its admin API."""
    async with AdminClient(red) as admin:
        yield admin
