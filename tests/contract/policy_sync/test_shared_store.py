"""Two clusters with one configuration store are refused before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange
from tests.support.kinds import StartClusters
from tests.support.reconciler import Reconciler

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_sandbox import Cluster


@pytest.fixture
def sharing(tmp_path: Path, start_clusters: StartClusters) -> Iterator[tuple[ClusterConnection, ClusterConnection]]:
    """Two clusters with brokers and bookies of their own, and one ZooKeeper for their tenants and namespaces."""
    with start_clusters(tmp_path / "east", clusters=("east",), brokers=2) as first:
        store = {"configurationMetadataStoreUrl": f"zk:127.0.0.1:{first.layout.clusters[0].zookeeper_port}"}
        with start_clusters(tmp_path / "west", clusters=("west",), brokers=2, settings={"west": store}) as second:
            yield reach(first["east"]), reach(second["west"])


def reach(cluster: Cluster) -> ClusterConnection:
    return ClusterConnection(name=cluster.name, admin_url=cluster.admin_url, service_url=cluster.service_url)


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
