"""Policies of two real clusters kept equal: what is found, who wins, what is never touched, and what it costs."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest
from tests.support.proxy import NONE, CallFault, Proxy, answer, behind, proxied
from tests.support.reconciler import (
    MAX_CONSUMERS,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    SETTERS,
    Reconciler,
    held,
    make_namespaces,
    set_policy,
)

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_fleet.policy_sync.merge.merge_resource import TieBreak
from pulsar_fleet.policy_sync.reconcile.request import Authority, Mode
from pulsar_fleet.policy_sync.reconcile.steps import read_plans

pytestmark = pytest.mark.versions

NewNamespace = Callable[[], NamespaceName]
NAMESPACES = int(os.environ.get("PULSAR_FLEET_TEST_NAMESPACES", "10"))


@pytest.fixture
async def shared(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> NamespaceName:
    """A namespace that both clusters have, without policies."""
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    return name


@pytest.fixture
async def keeper(shared: NamespaceName, blue: ClusterConnection, green: ClusterConnection) -> Reconciler:
    """Reconciliation of its tenant, after a first run in which both hold the same."""
    reconciler = Reconciler.of(shared.tenant, blue, green)
    first, repaired = await reconciler.cycle()
    assert (first.drifting, repaired) == (0, None), first
    return reconciler


async def test_a_change_on_either_side_reaches_the_other_and_leaves_no_drift(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    await on_green.post(f"/namespaces/{shared.path}/publishRate", {"publishThrottlingRateInMsg": 50})
    await on_blue.post(f"/namespaces/{shared.path}/permissions/writer", ["produce"])
    await on_green.post(f"/namespaces/{shared.path}/permissions/reader", ["consume"])
    drift, repaired = await keeper.cycle()
    assert (drift.conflicts, repaired and repaired.problems) == (0, ())
    expected = {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: 7}
    for admin, own in ((on_blue, "blue"), (on_green, "green")):
        assert await held(admin, shared, expected) == expected
        document = await admin.namespace(shared) or {}
        assert document["auth_policies"]["namespace_auth"] == {"writer": ["produce"], "reader": ["consume"]}
        assert document["publishMaxMessageRate"][own]["publishThrottlingRateInMsg"] == 50
        assert document["replication_clusters"] == [own]
    again, _ = await keeper.cycle()
    assert again.drifting == 0


async def test_what_is_taken_away_on_one_side_is_taken_away_on_the_other(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await on_blue.post(f"/namespaces/{shared.path}/permissions/writer", ["produce"])
    await on_blue.put(f"/namespaces/{shared.path}/properties", {"owner": "billing", "tier": "gold"})
    await on_green.create_topic(TopicName(shared, "orders"))
    await keeper.cycle_until_older(on_green, TopicName(shared, "orders"))
    await set_policy(on_green, shared, MAX_PRODUCERS[0], None)
    await on_green.delete(f"/namespaces/{shared.path}/permissions/writer")
    await on_green.delete(f"/namespaces/{shared.path}/property/tier")
    plan = read_plans(await keeper.find(), keeper.run)["blue"]
    _, repaired = await keeper.cycle(allow=frozenset(change.id for change in plan.needing_permission()))
    assert repaired
    assert repaired.problems == ()
    document = await on_blue.namespace(shared) or {}
    assert document.get(MAX_PRODUCERS[1]) is None
    assert document["auth_policies"]["namespace_auth"] == {}
    assert document["properties"] == {"owner": "billing"}


async def test_a_run_without_drift_costs_at_most_two_calls_for_a_namespace(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    records: Path,
) -> None:
    tenant = new_namespace().tenant
    names = [NamespaceName(tenant, f"n{number}") for number in range(NAMESPACES)]
    await make_namespaces(names, on_blue, on_green)
    keeper = Reconciler.of(tenant, blue, green)
    await keeper.cycle()
    drift, repaired = await keeper.cycle()
    assert (drift.drifting, drift.namespaces, repaired) == (0, NAMESPACES, None)
    fixed = 12
    assert all(calls <= 2 * NAMESPACES + fixed for calls in drift.calls.values()), drift.calls


async def test_all_changes_past_us_are_found_in_the_next_run_and_repaired(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    records: Path,
) -> None:
    tenant, chance = new_namespace().tenant, random.Random(7)
    names = [NamespaceName(tenant, f"n{number}") for number in range(NAMESPACES)]
    await make_namespaces(names, on_blue, on_green)
    keeper = Reconciler.of(tenant, blue, green)
    await keeper.cycle()
    changed = [(name, *setter) for name in names for setter in chance.sample(SETTERS, 2)]
    for number, (name, path, _) in enumerate(changed):
        await set_policy(chance.choice((on_blue, on_green)), name, path, number + 1)
    drift, repaired = await keeper.cycle()
    assert (drift.fields, repaired and repaired.repaired) == (len(changed), len(changed))
    for number, (name, _, field) in enumerate(changed):
        for admin in (on_blue, on_green):
            assert (await held(admin, name, (field,)))[field] == number + 1
    again, _ = await keeper.cycle()
    assert again.drifting == 0


async def edit(admins: tuple[AdminClient, ...], names: list[NamespaceName], chance: random.Random) -> JsonObject:
    """Some fields on one side, others on the other, and some on both: who set what."""
    edited: JsonObject = {}
    for name in names:
        for path, field in SETTERS:
            sides = chance.choice(((), (0,), (1,), (0, 1)))
            for side in sides:
                value = chance.randint(1, 1_000_000)
                await set_policy(admins[side], name, path, value)
                edited.setdefault(f"{name} {field}", {})[side] = value
    return edited


async def test_where_nobody_can_tell_the_larger_name_wins_if_that_is_wished_for(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    records: Path,
) -> None:
    tenant, chance = new_namespace().tenant, random.Random(5)
    names = [NamespaceName(tenant, f"n{number}") for number in range(3)]
    await make_namespaces(names, on_blue, on_green)
    keeper = Reconciler.of(tenant, blue, green, tie_break=TieBreak.LARGER)
    await keeper.cycle()
    edits = await edit((on_blue, on_green), names, chance)
    drift, repaired = await keeper.cycle()
    apart = [sides for sides in edits.values() if len(sides) == 2]
    assert (drift.conflicts, repaired and repaired.problems) == (len(apart), ())
    for key, sides in edits.items():
        name, _, field = key.partition(" ")
        for admin in (on_blue, on_green):
            assert (await held(admin, NamespaceName.parse(name), (field,)))[field] == sides.get(1, sides.get(0)), key
    losers = [conflict.sides for _, conflict in keeper.store.conflicts(newest=10_000)]
    assert all(set(sides) == {"blue", "green"} for sides in losers)


async def test_a_loser_can_be_chosen_afterwards(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_green, shared, MAX_PRODUCERS[0], 9)
    await keeper.cycle()
    ((conflict_id, conflict),) = keeper.store.conflicts()
    assert (conflict.winner, conflict.sides["green"]["value"]) == ("blue", 9)
    keeper.store.choose(conflict_id, "green")
    await keeper.cycle()
    expected = {MAX_PRODUCERS[1]: 9}
    assert [await held(admin, shared, expected) for admin in (on_blue, on_green)] == [expected, expected]
    assert (await keeper.find()).drifting == 0
    assert keeper.store.choices() == {}


@pytest.mark.parametrize("mode", [Mode.DRY_RUN, Mode.REPORT])
async def test_a_run_that_only_looks_changes_no_cluster(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler, mode: Mode
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    drift = await keeper.find(mode=mode)
    assert (drift.fields, drift.pairs, drift.plans["green"].changes) == (1, {"blue/green": 1}, 1)
    assert await held(on_green, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: None}
    _, repaired = await keeper.cycle()
    assert repaired
    assert repaired.repaired == 1


async def test_brokers_of_a_version_that_was_not_measured_are_named(
    shared: NamespaceName, keeper: Reconciler, blue: ClusterConnection, on_green: AdminClient
) -> None:
    assert (await keeper.find()).unmeasured == ()
    version = answer(200, "9.1.0", Date=formatdate(usegmt=True))
    async with behind(on_green, CallFault("GET .*/brokers/version", version)) as (through, _):
        drift = await Reconciler.of(shared.tenant, blue, await proxied(through)).find()
    (said,) = drift.unmeasured
    assert said.startswith("cluster green: brokers run 9.1.0. Its policies, its setters and what its brokers redirect")


async def test_a_cluster_that_does_not_tell_the_time_is_refused(
    shared: NamespaceName, blue: ClusterConnection, on_green: AdminClient
) -> None:
    async with behind(on_green, CallFault("GET .*/brokers/version", answer(200, "4.2.4"))) as (through, _):
        with pytest.raises(PreconditionFailed, match="have no valid header `Date`"):
            await Reconciler.of(shared.tenant, blue, through.connection).find()


async def test_where_one_cluster_is_the_truth_only_the_other_is_repaired(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_green, shared, MAX_PRODUCERS[0], 9)
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 9)
    drift, repaired = await keeper.cycle(authority=Authority.parse("cluster:blue"))
    assert (list(drift.plans), repaired and repaired.changed) == (["green"], ("green",))
    expected = {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: None}
    assert [await held(admin, shared, expected) for admin in (on_blue, on_green)] == [expected, expected]


async def test_a_new_namespace_is_created_everywhere_and_a_missing_one_reported(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    new = NamespaceName(shared.tenant, "new")
    await on_green.put(f"/namespaces/{new.path}", {"replication_clusters": ["green"], MAX_PRODUCERS[1]: 3})
    _, repaired = await keeper.cycle()
    assert repaired
    assert repaired.problems == ()
    assert await held(on_blue, new, ("replication_clusters", MAX_PRODUCERS[1])) == {
        "replication_clusters": ["blue"],
        MAX_PRODUCERS[1]: 3,
    }
    await on_blue.delete(f"/namespaces/{new.path}")
    for _ in range(2):
        drift, _ = await keeper.cycle()
        assert drift.tombstones == (f"namespace {new}",)
        assert await on_green.namespace(new) is not None
        assert await on_blue.namespace(new) is None
    refused, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE)
    assert await on_green.namespace(new) is not None
    (change,) = keeper.run.artefacts.read_json(refused.plans["green"].plan)["changes"]
    await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE, allow=frozenset({change["id"]}))
    assert await on_green.namespace(new) is None
    assert (await keeper.find()).drifting == 0


async def test_a_dangerous_change_waits_for_permission_and_stays_drift(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, "messageTTL", 60)
    drift, repaired = await keeper.cycle()
    assert repaired
    assert "allow it by its id" in repaired.problems[0]
    assert await held(on_green, shared, ("message_ttl_in_seconds",)) == {"message_ttl_in_seconds": None}
    (change,) = keeper.run.artefacts.read_json(drift.plans["green"].plan)["changes"]
    await keeper.cycle(allow=frozenset({change["id"]}))
    assert await held(on_green, shared, ("message_ttl_in_seconds",)) == {"message_ttl_in_seconds": 60}


async def test_limits_that_depend_on_each_other_are_repaired_in_one_run(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    path = f"/namespaces/{shared.path}"
    for admins, minutes, size in (((on_blue, on_green), 600, 100), ((on_blue,), -1, 1000), ((on_blue,), 60, 1000)):
        for admin in admins:
            await admin.post(f"{path}/retention", {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size})
            quota = {"limitSize": (size // 2) << 20, "limitTime": -1, "policy": "producer_exception"}
            await admin.post(f"{path}/backlogQuota", quota)
        if len(admins) > 1:
            await keeper.cycle()
    drift, repaired = await keeper.cycle()
    assert repaired
    assert repaired.repaired == 0
    changes = keeper.run.artefacts.read_json(drift.plans["green"].plan)["changes"]
    allow = frozenset(change["id"] for change in changes if change["hazard"] == "irreversible")
    _, repaired = await keeper.cycle(allow=allow)
    assert repaired
    assert repaired.problems == ()
    fields = ("retention_policies", "backlog_quota_map")
    assert await held(on_green, shared, fields) == await held(on_blue, shared, fields)


async def test_of_two_policies_of_a_topic_the_one_of_the_later_event_wins(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    shared: NamespaceName,
    keeper: Reconciler,
) -> None:
    topic = TopicName(shared, "events")
    for admin in (on_blue, on_green):
        await admin.create_topic(topic)
    await on_blue.post(f"/{topic.path}/maxProducers", 3)
    await on_green.post(f"/{topic.path}/maxConsumers", 4)
    _, repaired = await keeper.cycle()
    assert repaired
    assert repaired.problems == ()
    for admin in (on_blue, on_green):
        assert await admin.get(f"/{topic.path}/maxProducers") == 3
        assert await admin.get(f"/{topic.path}/maxConsumers") == 4
    await on_green.delete(f"/{topic.path}")
    drift, _ = await keeper.cycle()
    assert (drift.conflicts, await on_blue.get(f"/{topic.path}/maxProducers")) == (0, 3)


async def test_an_unreachable_cluster_is_named_and_its_old_value_beats_nothing(
    on_blue: AdminClient,
    on_green: AdminClient,
    shared: NamespaceName,
    keeper: Reconciler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulsar_fleet.policy_sync.reconcile.steps.PATIENCE_SECONDS", 0.2)
    blue, green = keeper.connections
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    keeper.connections = (blue, replace(green, admin_url="http://127.0.0.1:9"))
    drift, repaired = await keeper.cycle()
    assert (list(drift.behind), repaired) == (["green"], None)
    assert drift.behind["green"].last_seen is not None
    keeper.connections = (blue, green)
    _, repaired = await keeper.cycle()
    assert repaired
    assert repaired.changed == ("green",)
    assert await held(on_green, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: 5}


@pytest.mark.long
async def test_a_cluster_lost_during_a_run_is_left_out_and_caught_up_later(
    on_blue: AdminClient,
    on_green: AdminClient,
    shared: NamespaceName,
    keeper: Reconciler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulsar_fleet.policy_sync.reconcile.steps.PATIENCE_SECONDS", 0.2)
    blue, green = keeper.connections
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    async with Proxy(green.admin_url) as proxy:
        keeper.connections = (blue, replace(green, admin_url=proxy.url))
        for answered in (2, 8):
            proxy.faults.extend([NONE] * answered)
            proxy.otherwise = answer(503)
            drift, repaired = await keeper.cycle()
            assert (drift.drifting, repaired) == (0, None), answered
            assert drift.behind or drift.unread
        proxy.otherwise = NONE
        _, repaired = await keeper.cycle()
    assert repaired
    assert repaired.changed == ("green",)
    assert await held(on_green, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: 5}


async def test_a_run_cut_before_it_stored_anything_is_finished_by_the_next(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_blue, shared, MAX_SUBSCRIPTIONS[0], 6)
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    await keeper.find()
    # As a repair that was killed after its first write.
    await set_policy(on_green, shared, MAX_PRODUCERS[0], 5)
    drift, repaired = await keeper.cycle()
    assert (drift.conflicts, repaired and repaired.problems) == (0, ())
    expected = {MAX_PRODUCERS[1]: 5, MAX_SUBSCRIPTIONS[1]: 6, MAX_CONSUMERS[1]: 7}
    assert [await held(admin, shared, expected) for admin in (on_blue, on_green)] == [expected, expected]
