"""Ensembles against the target's bookies, on clusters of one bookie each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.remedies import calls, send

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.onboarding.steps import plan_onboarding, read_findings, take_snapshot
from pulsar_fleet.preflight.bookies import Bookies, read_bookies
from pulsar_fleet.preflight.findings import Finding
from pulsar_sandbox import Cluster

QUORUMS = {"bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 0.0}


async def findings(blue: ClusterConnection, green: ClusterConnection, tenant: str) -> dict[str, list[Finding]]:
    """What an onboarding of the tenant says, by id."""
    artefacts, selection = Artefacts.open(), Selection(tenants=frozenset({tenant}))
    source = await take_snapshot(blue, selection, artefacts, "r", name="source")
    target = await take_snapshot(green, selection, artefacts, "r", name="target")
    by_id: dict[str, list[Finding]] = {}
    for finding in read_findings(artefacts, plan_onboarding(source, target, artefacts, "r")):
        by_id.setdefault(finding.id, []).append(finding)
    return by_id


@pytest.mark.versions
async def test_more_bookies_than_green_has_are_named_before_anything_changes(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    name = new_namespace()
    topic = TopicName(name, "feed")
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"]})
    await on_blue.create_topic(topic)
    await on_blue.post(f"/namespaces/{name.path}/persistence", {"bookkeeperEnsemble": 5, **QUORUMS})
    await on_blue.post(f"/{topic.path}/persistence", {"bookkeeperEnsemble": 3, **QUORUMS})
    missing = (await findings(blue, green, name.tenant))["bookies-missing"]
    assert {finding.resource: (finding.source, finding.target) for finding in missing} == {
        str(name): (5, 1),
        str(topic): (3, 1),
    }
    for finding in missing:
        for _, call in calls(finding.call):
            await send(on_blue, call)
    assert "bookies-missing" not in await findings(blue, green, name.tenant)


async def test_bookies_that_a_role_may_not_list_are_unknown_and_not_none(secured: Cluster) -> None:
    connection = ClusterConnection(name="wide", admin_url=secured.admin_url, token=secured.token("nobody"))
    async with AdminClient(connection) as admin:
        bookies = await read_bookies(admin)
    assert bookies.count is None
    assert "401" in bookies.unread
    async with AdminClient(replace(connection, token=secured.token("admin"))) as admin:
        assert await read_bookies(admin) == Bookies(count=1)
