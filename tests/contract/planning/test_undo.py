"""A run is taken back: what it changed has its old value again, and what it created is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome, PlanResult
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.diff import diff
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import (
    BrokerState,
    ClusterDataState,
    NamespaceState,
    ResourceGroupState,
    Snapshot,
    TenantState,
)

pytestmark = pytest.mark.versions

REDACTOR = Redactor(b"a key of the tests")
Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]


async def held(admin: AdminClient, namespace: NamespaceName) -> Snapshot:
    selection = Selection(namespaces=frozenset({namespace}))
    return await collect(admin, selection, redactor=REDACTOR, load_topics=True)


async def apply(plan: Plan, target: AdminClient, run: str = "run") -> PlanResult:
    ids = [change.id for change in plan.needing_permission()]
    return await apply_plan(plan, target, Ledger.open(), run, redactor=REDACTOR, allow=ids)


async def undo(target: AdminClient) -> PlanResult:
    return await apply(plan_undo(Ledger.open(), "run"), target, "undo")


def failures(applied: PlanResult) -> list[tuple[str, str]]:
    return [(result.change.label, result.detail) for result in applied.not_in_place()]


async def test_a_namespace_that_was_changed_is_as_it_was_before(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    make_estate: Make,
    make_namespace: Make,
    records: Path,
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    await make_namespace(on_green, name)
    own = TopicName(name, "plain")
    await on_green.create_topic(own, {"kind": "old", "mine": "yes"})
    for path, body in (("messageTTL", 7200), ("permissions/writer", ["consume"]), ("maxProducersPerTopic", 3)):
        await on_green.post(f"/namespaces/{name.path}/{path}", body)
    await on_green.put(f"/namespaces/{name.path}/properties", {"owner": "somebody"})
    before = await held(on_green, name)
    applied = await apply(plan_changes(await held(on_blue, name), before), on_green)
    assert failures(applied) == []
    assert failures(await undo(on_green)) == []
    assert diff(before, await held(on_green, name)) == ()


async def test_a_namespace_that_was_created_is_gone_with_its_tenant(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_estate: Make, records: Path
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    await apply(plan_changes(await held(on_blue, name), await held(on_green, name)), on_green)
    assert failures(await undo(on_green)) == []
    assert await on_green.tenant(name.tenant) is None


async def test_what_was_created_is_deleted_only_by_its_id(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_estate: Make, records: Path
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    await apply(plan_changes(await held(on_blue, name), await held(on_green, name)), on_green)
    planned = plan_undo(Ledger.open(), "run")
    applied = await apply_plan(planned, on_green, Ledger.open(), "undo", redactor=REDACTOR)
    assert {result.outcome for result in applied.results} == {Outcome.REFUSED}
    assert TopicName(name, "plain") in await on_green.topics(name)


async def test_what_somebody_changed_since_stays(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> None:
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
    await on_blue.post(f"/namespaces/{name.path}/maxProducersPerTopic", 5)
    await apply(plan_changes(await held(on_blue, name), await held(on_green, name)), on_green)
    await on_green.post(f"/namespaces/{name.path}/maxProducersPerTopic", 9)
    assert [result.outcome for result in (await undo(on_green)).results] == [Outcome.CONFLICT]


async def test_partitions_stay_and_are_named(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> None:
    name = new_namespace()
    for admin, count in ((on_blue, 4), (on_green, 2)):
        await make_namespace(admin, name)
        await admin.create_partitioned_topic(TopicName(name, "events"), count)
    await apply(plan_changes(await held(on_blue, name), await held(on_green, name)), on_green)
    planned = plan_undo(Ledger.open(), "run")
    assert planned.empty
    assert [entry.reason for entry in planned.left_alone] == ["partitions cannot be removed"]


def test_a_run_that_nobody_knows_cannot_be_undone(records: Path) -> None:
    with pytest.raises(NotFound, match="check the run id"):
        plan_undo(Ledger.open(), "never")


async def of_the_cluster(admin: AdminClient, name: str) -> Snapshot:
    """What the target holds of the kinds that belong to a cluster, as far as they are called `name`."""
    own = await admin.cluster_name()
    isolation: JsonObject = {}
    with suppress(NotFound):  # so a cluster answers that never had one
        isolation = await admin.get(f"/clusters/{own}/namespaceIsolationPolicies")
    domains = await admin.get(f"/clusters/{own}/failureDomains")
    groups = await admin.get("/resourcegroups")
    limits = await admin.get(f"/resourcegroups/{name}") if name in groups else None
    peer = await admin.cluster_data(name)
    cluster = ClusterDataState(
        own,
        {},
        {key: value for key, value in domains.items() if key == name},
        {key: value for key, value in isolation.items() if key == name},
    )
    return Snapshot(
        cluster=own,
        began="",
        ended="",
        key_id=REDACTOR.key_id,
        known_clusters=await admin.clusters(),
        clusters=(cluster, ClusterDataState(name, peer)) if peer else (cluster,),
        resource_groups=(ResourceGroupState(name, limits),) if limits is not None else (),
        brokers=tuple(
            BrokerState(broker, "4.2.4", {}) for broker in ("old-1:80", f"{name}:80", *await admin.brokers())
        ),
    )


@pytest.mark.cluster
async def test_groups_domains_isolation_and_peers_are_applied_and_undone(
    on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> None:
    """A policy for brokers that are not there, so that no other test is disturbed."""
    space = new_namespace()
    name = space.tenant
    before = await of_the_cluster(on_green, name)
    policy = {
        "namespaces": [f"{name}/.*"],
        "primary": ["old-1(:80)?"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    domains = {name: {"brokers": [f"{name}:80"]}}
    peer = {"serviceUrl": "http://third:8080", "brokerServiceUrl": "pulsar://third:6650"}
    document = {
        "replication_clusters": ["blue"],
        "allowed_clusters": ["blue", name],
        "resource_group_name": name,
        "is_allow_auto_update_schema": True,
        "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
    }
    source = replace(
        before,
        cluster="blue",
        clusters=(ClusterDataState("blue", {}, domains, {name: policy}), ClusterDataState(name, peer)),
        resource_groups=(ResourceGroupState(name, {"publishRateInMsgs": 50, "dispatchRateInBytes": 900}),),
        tenants=(TenantState(name, (), tuple(sorted(("blue", name)))),),
        namespaces=(NamespaceState(str(space), document),),
    )
    planned = plan_changes(source, before)
    kinds = [change.resource for change in planned.changes]
    assert kinds[:4] == [Resource.CLUSTER, Resource.RESOURCE_GROUP, Resource.FAILURE_DOMAIN, Resource.ISOLATION]
    assert failures(await apply(planned, on_green)) == []
    after = await of_the_cluster(on_green, name)
    current = await held(on_green, space)
    kept = replace(after, tenants=current.tenants, namespaces=current.namespaces)
    assert plan_changes(source, kept).changes == ()
    lower = replace(source, resource_groups=(ResourceGroupState(name, {"publishRateInMsgs": 20}),))
    assert failures(await apply(plan_changes(lower, kept), on_green)) == []
    assert (await on_green.get(f"/resourcegroups/{name}"))["dispatchRateInBytes"] == -1
    assert failures(await undo(on_green)) == []
    assert diff(before, await of_the_cluster(on_green, name)) == ()


async def test_a_subscription_has_its_properties_and_its_flag_on_the_target(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> None:
    name = new_namespace()
    topics = (TopicName(name, "plain"), TopicName(name, "events"))
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
        await admin.create_topic(topics[0])
        await admin.create_partitioned_topic(topics[1], 2)
    for topic in topics:
        await on_blue.put(topic.subscription_path("new"), "earliest", replicated=True)
        await on_blue.create_subscription(topic, "old")
        await on_green.create_subscription(topic, "old")
        for subscription in ("new", "old"):
            await on_blue.put(f"{topic.subscription_path(subscription)}/properties", {"team": "billing"})
    source = await held(on_blue, name)
    subscriptions = tuple(replace(subscription, replicated=True) for subscription in source.subscriptions)
    target = await held(on_green, name)
    applied = await apply(plan_changes(replace(source, subscriptions=subscriptions), target), on_green)
    assert failures(applied) == []
    for topic in topics:
        for subscription in ("new", "old"):
            assert await on_green.get(f"{topic.subscription_path(subscription)}/properties") == {"team": "billing"}
    assert {subscription.replicated for subscription in (await held(on_green, name)).subscriptions} == {True}
    assert failures(await undo(on_green)) == []
    assert {
        (subscription.name, subscription.replicated) for subscription in (await held(on_green, name)).subscriptions
    } == {("old", False)}
