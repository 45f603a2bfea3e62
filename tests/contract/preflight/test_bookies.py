"""Ensembles against the target's bookies, on clusters of one bookie each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.reconciler import make_namespaces
from tests.support.remedies import calls, send

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.onboarding.steps import plan_onboarding, take_snapshot
from pulsar_fleet.preflight.bookies import Bookies, read_bookies
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_sandbox import Cluster

QUORUMS = {"bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 0.0}


async def findings(blue: ClusterConnection, green: ClusterConnection, tenant: str) -> dict[str, list[Finding]]:
    """What an onboarding of the tenant says, by id."""
    artefacts, selection = Artefacts.open(), Selection(tenants=frozenset({tenant}))
    source = await take_snapshot(blue, selection, artefacts, "r", name="source")
    target = await take_snapshot(green, selection, artefacts, "r", name="target")
    by_id: dict[str, list[Finding]] = {}
    for finding in plan_onboarding(source, target, artefacts).findings:
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


@asynccontextmanager
async def in_group(admin: AdminClient, *groups: str) -> AsyncIterator[None]:
    """The only bookie of a cluster in a group after the other; a bookie is in one group."""
    (bookie,) = [row["bookieId"] for row in (await admin.get("/bookies/all"))["bookies"]]
    path, rack = f"/bookies/racks-info/{bookie}", {"rack": "/one", "hostname": bookie}
    try:
        for group in groups:
            await admin.send(with_body("POST", path, rack, group=group))
        yield
    finally:
        await admin.delete(path)


async def test_a_group_of_bookies_that_green_lacks_is_named_and_made(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    name, affinity = new_namespace(), {"bookkeeperAffinityGroupPrimary": "fast"}
    await make_namespaces([name], on_blue, on_green)
    for admin in (on_blue, on_green):
        await admin.post(f"/namespaces/{name.path}/persistence/bookieAffinity", affinity)
    (ungrouped,) = (await findings(blue, green, name.tenant))["bookie-group-missing"]
    assert ungrouped.severity is Severity.WARNING
    await on_green.create_topic(TopicName(name, "before"))
    async with in_group(on_green, "slow"):
        (finding,) = (await findings(blue, green, name.tenant))["bookie-group-missing"]
        assert (finding.resource, finding.severity) == (str(name), Severity.BLOCKER)
        assert "Not enough non-faulty bookies available" in await refused(on_green, name)
    async with in_group(on_green, "slow", "fast"):
        assert "bookie-group-missing" not in await findings(blue, green, name.tenant)
        await on_green.create_topic(TopicName(name, "after"))


async def refused(admin: AdminClient, namespace: NamespaceName) -> str:
    """Why the cluster creates no topic, once its brokers know the groups."""
    async with AdminClient(admin.connection, retry_seconds=0) as once:
        for number in range(40):
            try:
                await once.create_topic(TopicName(namespace, f"try-{number}"))
            except Unavailable as error:
                return str(error)
            await asyncio.sleep(0.25)
    return ""


async def test_bookies_that_a_role_may_not_list_are_unknown_and_not_none(secured: Cluster) -> None:
    connection = ClusterConnection(name="wide", admin_url=secured.admin_url, token=secured.token("nobody"))
    async with AdminClient(connection) as admin:
        bookies = await read_bookies(admin)
    assert bookies.count is None
    assert "401" in bookies.unread
    async with AdminClient(replace(connection, token=secured.token("admin"))) as admin:
        assert await read_bookies(admin) == Bookies(count=1, groups={})
