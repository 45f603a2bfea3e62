"""A tenant, a namespace or a topic that was deleted and created again on one cluster takes nothing from the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange
from tests.support.reconciler import MAX_PRODUCERS, Reconciler, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.plan import Hazard
from pulsar_fleet.policy_sync.merge.merge_resource import Rule
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary
from pulsar_fleet.policy_sync.reconcile.steps import read_plans

NewNamespace = Callable[[], NamespaceName]
ROLES = {"app": ["consume"], "audit": ["consume"], "billing": ["consume"]}


async def give(admin: AdminClient, name: NamespaceName) -> None:
    """TTL and roles."""
    await admin.post(f"/namespaces/{name.path}/messageTTL", 3600)
    for role, actions in ROLES.items():
        await admin.post(f"/namespaces/{name.path}/permissions/{role}", actions)


@pytest.fixture
async def agreed(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> NamespaceName:
    """A namespace that both clusters have, with the same TTL and the same three roles."""
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    for admin in (on_blue, on_green):
        await give(admin, name)
    return name


@pytest.fixture
async def keeper(agreed: NamespaceName, blue: ClusterConnection, green: ClusterConnection) -> Reconciler:
    """Reconciliation of its tenant, after a first run."""
    reconciler = Reconciler.of(agreed.tenant, blue, green)
    await reconciler.cycle()
    return reconciler


async def recreate(admin: AdminClient, name: NamespaceName) -> None:
    """As infrastructure code does."""
    own = await admin.cluster_name()
    await admin.delete(f"/namespaces/{name.path}")
    await admin.put(f"/namespaces/{name.path}", {"replication_clusters": [own]})


async def held(admin: AdminClient, name: NamespaceName) -> tuple[Json, Json]:
    """TTL and roles."""
    document = await admin.namespace(name) or {}
    return document.get("message_ttl_in_seconds"), document["auth_policies"]["namespace_auth"]


def undecided(drift: DriftSummary) -> dict[str, str]:
    """Field → id of the conflict that asks about it."""
    return {conflict.field: conflict.id for conflict in drift.listed_conflicts if conflict.rule == Rule.UNDECIDED}


async def test_a_namespace_that_was_rebuilt_empty_takes_nothing(
    on_blue: AdminClient, on_green: AdminClient, agreed: NamespaceName, keeper: Reconciler
) -> None:
    await recreate(on_green, agreed)
    drift, repaired = await keeper.cycle()
    assert await held(on_blue, agreed) == (3600, ROLES)
    again, _ = await keeper.cycle()
    assert await held(on_blue, agreed) == (3600, ROLES)
    asked = undecided(again)
    assert set(asked) == {"message_ttl_in_seconds", *(f"auth_policies/namespace_auth/{role}" for role in ROLES)}
    assert (asked, repaired) == (undecided(drift), None)

    chosen = dict.fromkeys(asked.values(), "blue")
    plan = read_plans(await keeper.find(choose=chosen), keeper.run)["green"]
    # The TTL lets messages of green expire.
    await keeper.cycle(choose=chosen, allow=frozenset(change.id for change in plan.needing_permission()))
    assert [await held(admin, agreed) for admin in (on_blue, on_green)] == [(3600, ROLES)] * 2
    last, _ = await keeper.cycle()
    assert (last.drifting, last.conflicts) == (0, 0)


async def test_what_a_person_removed_is_removed_and_a_revocation_is_named(
    on_blue: AdminClient, on_green: AdminClient, agreed: NamespaceName, keeper: Reconciler
) -> None:
    await on_green.create_topic(TopicName(agreed, "orders"))
    await keeper.cycle_until_older(on_green, TopicName(agreed, "orders"))
    await on_green.delete(f"/namespaces/{agreed.path}/messageTTL")
    for role in ROLES:
        await on_green.delete(f"/namespaces/{agreed.path}/permissions/{role}")
    drift, repaired = await keeper.cycle()
    (revocation,) = (
        change for change in read_plans(drift, keeper.run)["blue"].changes if change.field != "message_ttl_in_seconds"
    )
    assert (drift.conflicts, revocation.hazard) == (0, Hazard.DESTRUCTIVE)
    assert repaired
    assert len(repaired.problems) == 1
    assert await held(on_blue, agreed) == (None, ROLES)
    _, repaired = await keeper.cycle(allow=frozenset({revocation.id}))
    assert repaired
    assert repaired.problems == ()
    assert await held(on_blue, agreed) == (None, {})


async def test_a_namespace_that_was_rebuilt_with_topics_is_asked_about_too(
    on_blue: AdminClient, on_green: AdminClient, agreed: NamespaceName, keeper: Reconciler
) -> None:
    orders = TopicName(agreed, "orders")
    await on_green.create_topic(orders)
    await keeper.cycle()
    await on_green.delete(f"/{orders.path}")
    await recreate(on_green, agreed)
    await on_green.create_topic(orders)
    await on_green.post(f"/{orders.path}/messageTTL", messageTTL=60)
    drift, _ = await keeper.cycle()
    assert len(undecided(drift)) == 4
    assert await held(on_blue, agreed) == (3600, ROLES)


async def test_a_tenant_that_was_rebuilt_takes_no_role(
    on_blue: AdminClient, on_green: AdminClient, agreed: NamespaceName, keeper: Reconciler
) -> None:
    for admin, own in ((on_blue, "blue"), (on_green, "green")):
        await admin.post(f"/tenants/{agreed.tenant}", {"adminRoles": ["ops"], "allowedClusters": [own]})
    await keeper.cycle()
    await on_green.delete(f"/namespaces/{agreed.path}")
    await on_green.delete(f"/tenants/{agreed.tenant}")
    await make_namespaces([agreed], on_green)
    drift, _ = await keeper.cycle()
    assert "adminRoles" in undecided(drift)
    assert ((await on_blue.tenant(agreed.tenant)) or {})["adminRoles"] == ["ops"]


async def test_a_topic_that_was_rebuilt_takes_no_policy_and_no_property(
    on_blue: AdminClient, on_green: AdminClient, agreed: NamespaceName, keeper: Reconciler
) -> None:
    orders = TopicName(agreed, "orders")
    for admin in (on_blue, on_green):
        await admin.create_partitioned_topic(orders, 2, {"owner": "billing", "tier": "gold"})
        await admin.post(f"/{orders.path}/maxProducers", 7)
        await set_policy(admin, agreed, MAX_PRODUCERS[0], 5)
    await keeper.cycle()
    await on_green.delete(f"/{orders.path}/partitions")
    await on_green.create_partitioned_topic(orders, 2)
    drift, _ = await keeper.cycle()
    assert await on_blue.get(f"/{orders.path}/maxProducers") == 7
    assert (await on_blue.partition_metadata(orders)).properties == {"owner": "billing", "tier": "gold"}
    # By a clock of whole seconds it may be unknown whether the topic existed at the last scan: then it is asked about.
    await keeper.cycle(choose=dict.fromkeys(undecided(drift).values(), "blue"))
    assert await on_green.get(f"/{orders.path}/maxProducers") == 7
    assert (await on_green.partition_metadata(orders)).properties == {"owner": "billing", "tier": "gold"}
    await on_green.delete(f"/{orders.path}/maxProducers")
    drift, repaired = await keeper.cycle()
    assert (drift.conflicts, repaired and repaired.problems) == (0, ())
    assert not await on_blue.get(f"/{orders.path}/maxProducers")


@pytest.mark.parametrize("deletion_was_found", [False, True])
async def test_events_of_a_rebuilt_namespace_take_nothing_from_the_others(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, deletion_was_found: bool
) -> None:
    for admin in (on_blue, on_green):
        await give(admin, shared)
    await exchange.settle()
    if deletion_was_found:
        await on_green.delete(f"/namespaces/{shared.path}")
        await exchange.run()
        await on_green.put(f"/namespaces/{shared.path}", {"replication_clusters": ["green"]})
    else:
        await recreate(on_green, shared)
    await exchange.run()
    await exchange.run(snapshot=True)
    assert await held(on_blue, shared) == (3600, ROLES)
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await on_blue.post(f"/namespaces/{shared.path}/permissions/app", ["produce"])
    await exchange.settle()
    document = await on_green.namespace(shared) or {}
    assert (document[MAX_PRODUCERS[1]], document["auth_policies"]["namespace_auth"]["app"]) == (5, ["produce"])
    assert await held(on_blue, shared) == (3600, {**ROLES, "app": ["produce"]})


async def test_events_take_away_what_a_person_removed_also_rights(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    orders = TopicName(shared, "orders")
    await on_green.create_topic(orders)
    await exchange.run_until_older(on_green, orders)
    for admin in (on_blue, on_green):
        await give(admin, shared)
    await exchange.settle()
    await on_green.delete(f"/namespaces/{shared.path}/messageTTL")
    for role in ROLES:
        await on_green.delete(f"/namespaces/{shared.path}/permissions/{role}")
    await exchange.settle()
    assert await held(on_blue, shared) == (None, {})
