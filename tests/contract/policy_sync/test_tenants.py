"""Tenants that one cluster creates and changes: carried by events and by reconciliation, none is created beforehand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange
from tests.support.reconciler import Reconciler

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json, JsonObject

from .conftest import NewNamespace

pytestmark = [pytest.mark.versions, pytest.mark.long]


@pytest.fixture
def absent(new_namespace: NewNamespace, records: Path) -> str:
    """A tenant that no cluster has."""
    return new_namespace().tenant


@pytest.fixture
async def exchange(
    absent: str, blue: ClusterConnection, green: ClusterConnection, on_blue: AdminClient, on_green: AdminClient
) -> AsyncIterator[Exchange]:
    new_exchange = Exchange.of(absent, blue, green)
    await new_exchange.settle()
    yield new_exchange
    await new_exchange.remove(on_blue, on_green)


def tenant(roles: list[str], *clusters: str) -> JsonObject:
    return {"adminRoles": roles, "allowedClusters": list(clusters)}


@pytest.mark.needs_pulsar("4.0", "an older cluster is not added to a list")
async def test_a_tenant_is_created_and_changed_by_events(
    on_blue: AdminClient, on_green: AdminClient, absent: str, exchange: Exchange
) -> None:
    await on_blue.put(f"/tenants/{absent}", tenant(["ops"], "blue"))
    await on_blue.put(f"/namespaces/{absent}/orders", {"replication_clusters": ["blue"]})
    summary = await exchange.run()
    assert [tally.reasons for tally in summary.clusters.values()] == [[], []]
    assert await sides(absent, on_blue, on_green) == [(["ops"], ["blue"]), (["ops"], ["green"])]
    assert [str(name) for name in await on_green.namespaces(absent)] == [f"{absent}/orders"]
    await exchange.settle()
    await on_green.post(f"/tenants/{absent}", tenant(["audit", "ops"], "green"))
    await exchange.run()
    assert await sides(absent, on_blue, on_green) == [(["audit", "ops"], ["blue"]), (["audit", "ops"], ["green"])]
    await exchange.settle()
    await on_blue.post(f"/tenants/{absent}", tenant(["audit"], "blue", "green"))
    await exchange.run()
    assert await sides(absent, on_blue, on_green) == [(["audit"], ["blue", "green"])] * 2


async def test_a_tenant_without_a_namespace_is_carried_alone(
    on_blue: AdminClient, on_green: AdminClient, absent: str, exchange: Exchange
) -> None:
    await on_green.put(f"/tenants/{absent}", tenant(["ops"], "green"))
    summary = await exchange.run()
    assert (summary.clusters["green"].published, summary.clusters["blue"].written) == (1, 1)
    assert await sides(absent, on_blue, on_green) == [(["ops"], ["blue"]), (["ops"], ["green"])]


async def test_a_cluster_that_the_other_side_does_not_know_is_not_allowed_there(
    on_blue: AdminClient, on_green: AdminClient, absent: str, exchange: Exchange
) -> None:
    await on_blue.put(f"/tenants/{absent}", tenant(["ops"], "blue"))
    await exchange.settle()
    await on_blue.put_cluster("red", {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"})
    await on_blue.post(f"/tenants/{absent}", tenant(["ops"], "blue", "red"))
    summary = await exchange.run()
    assert await sides(absent, on_green) == [(["ops"], ["green"])]
    (reason,) = summary.clusters["green"].reasons
    assert "green does not know red" in reason


async def test_a_tenant_is_created_and_changed_by_reconciliation(
    on_blue: AdminClient, on_green: AdminClient, absent: str, blue: ClusterConnection, green: ClusterConnection
) -> None:
    reconciler = Reconciler.of(absent, blue, green)
    await reconciler.cycle()
    await on_green.put(f"/tenants/{absent}", tenant(["ops"], "green"))
    await on_green.put(f"/namespaces/{absent}/orders", {"replication_clusters": ["green"]})
    drift, repaired = await reconciler.cycle()
    assert (drift.missing, repaired is not None and repaired.complete) == (2, True)
    assert await sides(absent, on_blue, on_green) == [(["ops"], ["blue"]), (["ops"], ["green"])]
    assert [str(name) for name in await on_blue.namespaces(absent)] == [f"{absent}/orders"]
    await on_blue.post(f"/tenants/{absent}", tenant(["audit"], "blue"))
    # Whether a tenant was created again is unknown, so a person decides about the role that it lacks.
    drift, _ = await reconciler.cycle()
    assert await sides(absent, on_green) == [(["ops"], ["green"])]
    await reconciler.cycle_allowing(choose={drift.listed_conflicts[0].id: "blue"})
    assert await sides(absent, on_blue, on_green) == [(["audit"], ["blue"]), (["audit"], ["green"])]
    assert (await reconciler.find()).drifting == 0


async def sides(name: str, *admins: AdminClient) -> list[Json]:
    """The roles and the clusters of a tenant on each cluster; None where it does not exist."""
    tenants = [await admin.tenant(name) for admin in admins]
    return [document and (sorted(document["adminRoles"]), sorted(document["allowedClusters"])) for document in tenants]
