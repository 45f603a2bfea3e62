"""Rights of roles on both clusters are joined action by action; what a plan revokes, it says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.snapshot.collect import collect

pytestmark = pytest.mark.versions

REDACTOR = Redactor(b"a key of the tests")


async def plan(source: AdminClient, target: AdminClient, namespace: NamespaceName) -> Plan:
    selection = Selection(namespaces=frozenset({namespace}))
    sides = [await collect(admin, selection, redactor=REDACTOR) for admin in (source, target)]
    return plan_changes(*sides)


@pytest.fixture
async def both(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[[AdminClient, NamespaceName], Awaitable[None]],
    records: Path,
) -> NamespaceName:
    """A namespace that both clusters have, with one topic."""
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
        await admin.create_topic(TopicName(name, "events"))
    return name


async def test_a_role_keeps_the_actions_that_only_the_target_grants(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "events")
    space = f"/namespaces/{both.path}"
    for admin, action, role in ((on_blue, "consume", "old-reader"), (on_green, "produce", "new-reader")):
        await admin.post(f"{space}/permissions/app", [action])
        await admin.post(f"/{topic.path}/permissions/app", [action])
        await admin.post(f"{space}/permissions/subscription/s", [role])
    planned = await plan(on_blue, on_green, both)
    applied = await apply_plan(planned, on_green, Ledger.open(), "run", redactor=REDACTOR)
    assert applied.not_in_place() == ()
    rights = (await on_green.namespace(both) or {})["auth_policies"]
    assert sorted(rights["namespace_auth"]["app"]) == ["consume", "produce"]
    assert sorted(rights["destination_auth"][str(topic)]["app"]) == ["consume", "produce"]
    assert sorted(rights["subscription_auth_roles"]["s"]) == ["new-reader", "old-reader"]
    assert (await plan(on_blue, on_green, both)).empty


async def test_a_tenant_keeps_the_roles_and_clusters_of_the_target(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    await on_blue.post(f"/tenants/{both.tenant}", {"adminRoles": ["one"], "allowedClusters": ["blue"]})
    await on_green.post(f"/tenants/{both.tenant}", {"adminRoles": ["two"], "allowedClusters": ["green"]})
    planned = await plan(on_blue, on_green, both)
    applied = await apply_plan(planned, on_green, Ledger.open(), "run", redactor=REDACTOR)
    assert applied.not_in_place() == ()
    tenant = await on_green.tenant(both.tenant) or {}
    assert sorted(tenant["adminRoles"]) == ["one", "two"]
    assert tenant["allowedClusters"] == ["green"]
