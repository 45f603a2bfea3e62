"""Of two clusters with one configuration store one takes part, also if they are never named together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange
from tests.support.kinds import StartClusters
from tests.support.reconciler import Reconciler

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox import Cluster


@pytest.fixture(scope="module")
def sharing(
    tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[tuple[ClusterConnection, ClusterConnection]]:
    """Two clusters with brokers and bookies of their own, and one ZooKeeper for their tenants and namespaces."""
    tmp_path = tmp_path_factory.mktemp("sharing")
    with start_clusters(tmp_path / "east", clusters=("east",), brokers=2) as first:
        store = {"configurationMetadataStoreUrl": f"zk:127.0.0.1:{first.layout.clusters[0].zookeeper_port}"}
        with start_clusters(tmp_path / "west", clusters=("west",), brokers=2, settings={"west": store}) as second:
            yield reach(first["east"]), reach(second["west"])


def reach(cluster: Cluster) -> ClusterConnection:
    return ClusterConnection(name=cluster.name, admin_url=cluster.admin_url, service_url=cluster.service_url)


@pytest.mark.long
@pytest.mark.parametrize("together", [False, True], ids=["alone", "with another store"])
async def test_after_one_cluster_of_a_store_took_part_the_other_is_refused(
    sharing: tuple[ClusterConnection, ClusterConnection],
    red: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
    together: bool,
) -> None:
    east, west = sharing
    exchange = Exchange.of(new_namespace().tenant, west, red)
    await exchange.run()
    later = Exchange((east, red) if together else (east,), exchange.request)
    with pytest.raises(InvalidRequest, match=r"^Cluster east shares a configuration store with west, which takes part"):
        await later.run()
    async with AdminClient(east) as on_east, AdminClient(red) as on_red:
        document = await on_east.namespace(exchange.request.event_topic.namespace) or {}
        assert sorted(document["replication_clusters"]) == ["red", "west"]
        assert (await exchange.run()).fleet == ("red", "west")
        await exchange.remove(on_red)


@pytest.mark.long
async def test_connections_that_share_a_configuration_store_are_refused(
    sharing: tuple[ClusterConnection, ClusterConnection], records: Path
) -> None:
    exchange = Exchange.of("public", *sharing)
    refused = "^Clusters east and west share a configuration store .*: name the connection of only one of them.$"
    with pytest.raises(InvalidRequest, match=refused):
        await exchange.run()
    with pytest.raises(InvalidRequest, match=refused):
        await Reconciler.of("public", *sharing).find()
    async with AdminClient(sharing[0]) as on_east:
        assert exchange.request.event_topic.namespace.tenant not in await on_east.tenants()
