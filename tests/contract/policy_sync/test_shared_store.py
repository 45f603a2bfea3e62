"""Two clusters with one configuration store: what they share is found, and no procedure takes one for two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange
from tests.support.kinds import StartClusters
from tests.support.reconciler import Reconciler
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.leases import ClusterRuns, Lease
from pulsar_fleet.cluster.runs.state_topic import read_runs, update_runs
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.prepare.freeze import read_original_settings, record_overrides
from pulsar_fleet.migration.third_clusters import Incoming
from pulsar_sandbox import Cluster


@pytest.fixture(scope="module")
def sharing(
    tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[tuple[ClusterConnection, ClusterConnection]]:
    """Two clusters with brokers and bookies of their own, and one store for their tenants and namespaces."""
    folder = tmp_path_factory.mktemp("sharing")
    with start_clusters(folder, clusters=("east", "west"), shared_store=True) as sandbox:
        yield reach(sandbox["east"]), reach(sandbox["west"])


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


@pytest.mark.long
async def test_nothing_is_copied_or_replicated_between_them(
    sharing: tuple[ClusterConnection, ClusterConnection], new_namespace: Callable[[], NamespaceName], records: Path
) -> None:
    name, shell = new_namespace(), Shell.between(records, *sharing)
    async with AdminClient(sharing[0]) as on_east:
        await on_east.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["east", "west"]})
        await on_east.put_namespace(name, {"replication_clusters": ["east"]})
        await on_east.post(f"/namespaces/{name.path}/allowedClusters", ["east", "west"])
        await on_east.create_topic(TopicName(name, "events"))
        before = await on_east.namespace(name)
        for command, scope in (("onboard", "--select"), ("replicate", "--namespaces")):
            refused = shell.run(command, *shell.sides, scope, name, "--yes", "--json")
            assert (refused.state, "shared-configuration-store" in refused.err) == (4, True), refused.err
        assert await on_east.namespace(name) == before


@pytest.mark.long
async def test_each_cluster_of_a_store_keeps_the_leases_of_its_own_runs(
    sharing: tuple[ClusterConnection, ClusterConnection],
) -> None:
    async with AdminClient(sharing[0]) as on_east, AdminClient(sharing[1]) as on_west:
        for admin in (on_east, on_west):
            lease = Lease(run=f"of {admin.connection.name}", started="", process="", expires=time.time() + 60)

            async def take(runs: ClusterRuns, lease: Lease = lease) -> ClusterRuns:
                return runs.with_leases(["acme/orders"], lease, cluster=lease.run, now=time.time())

            assert await read_runs(admin) == ClusterRuns()
            await update_runs(admin, take)
        read = [(await read_runs(admin)).leases["acme/orders"].run for admin in (on_east, on_west)]
        assert read == ["of east", "of west"]


@pytest.mark.long
async def test_a_third_cluster_with_the_store_of_the_old_one_is_refused(
    sharing: tuple[ClusterConnection, ClusterConnection],
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    """To take the old cluster out of a list would take it out of its own, and delete its topics."""
    run = Run("moved", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path)))
    name = new_namespace()
    topic = TopicName(name, "events")
    async with AdminClient(sharing[0]) as east, AdminClient(sharing[1]) as west:
        await east.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["east", "west"]})
        await east.put_namespace(name, {"replication_clusters": ["east", "west"]})
        await west.create_topic(topic)
        before = await read_original_settings(east, [name], "green")
        await record_overrides(east, run, name, before)
        found = await Incoming.find(west, "west", name, old="east", new="green")
        assert found is not None
        assert found.partitions == (topic,)
        with pytest.raises(PreconditionFailed, match=r"^.* on west has what this run has stored on east: "):
            await found.hold(run, Sides(sharing[0], green))
        assert sorted((await east.namespace(name) or {})["replication_clusters"]) == ["east", "west"]
