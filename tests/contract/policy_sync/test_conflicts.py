"""Conflicts and deletions on two real clusters: listed with their losing values, and never decided by a later run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, Reconciler, held, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_fleet.policy_sync.reconcile.request import Authority, Mode
from pulsar_fleet.report.reconciliation import headline

pytestmark = pytest.mark.versions

NewNamespace = Callable[[], NamespaceName]


@pytest.fixture
async def keeper(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    records: Path,
) -> Reconciler:
    """Reconciliation of a tenant with one namespace that both clusters hold alike."""
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    keeper = Reconciler.of(name.tenant, blue, green)
    await keeper.cycle()
    return keeper


@pytest.fixture
def shared(keeper: Reconciler) -> NamespaceName:
    """Its namespace."""
    (tenant,) = keeper.request.selection.tenants
    return NamespaceName(tenant, "orders")


def command(keeper: Reconciler, *words: str) -> subprocess.CompletedProcess[str]:
    """`pulsar-fleet reconcile` of the tenant, with the same ledger."""
    (tenant,) = keeper.request.selection.tenants
    urls = [connection.admin_url for connection in keeper.connections]
    line = [sys.executable, "-m", "pulsar_fleet.cli", "reconcile", *urls, "--select", tenant, *words]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.long
async def test_the_command_lists_conflicts_and_its_ids_choose(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_green, shared, MAX_PRODUCERS[0], 9)
    for _ in range(2):  # a later run lists what an earlier one recorded
        completed = command(keeper)
        (line,) = (line for line in completed.stdout.splitlines() if line.startswith("CONFLICT "))
        conflict_id = line.split()[1]
        assert f"namespace {shared} max_producers_per_topic: blue 5 wins" in line
        assert "green 9 loses" in line
    chosen = command(keeper, "--mode", "repair", "--yes", "--choose", f"{conflict_id}=green")
    expected = {MAX_PRODUCERS[1]: 9}
    assert [await held(admin, shared, expected) for admin in (on_blue, on_green)] == [expected, expected]
    assert chosen.returncode == 0, chosen.stdout + chosen.stderr
    assert "Afterwards: Equal: blue, green hold the same" in chosen.stdout


async def test_a_repair_tells_the_state_after_it(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_blue, shared, "messageTTL", 60)
    drift, repaired = await keeper.cycle()
    assert repaired
    assert repaired.after
    assert (drift.fields, repaired.repaired, repaired.after.fields, repaired.after.drifting) == (2, 1, 1, 1)
    (change,) = (
        change
        for change in keeper.run.artefacts.read_json(drift.plans["green"].plan)["changes"]
        if change["field"] == "message_ttl_in_seconds"
    )
    drift, repaired = await keeper.cycle(allow=frozenset({change["id"]}))
    assert repaired
    assert repaired.after
    assert (repaired.after.drifting, headline(drift, repaired).startswith("Repaired: 1 change on green.")) == (0, True)


async def test_the_document_of_a_repair_tells_both_states(
    on_blue: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    completed = command(keeper, "--mode", "repair", "--yes", "--json")
    document = json.loads(completed.stdout)
    assert (document["drifting"], document["repaired"]["after"]["drifting"], completed.returncode) == (1, 0, 0)


@pytest.mark.parametrize("first", [Mode.REPORT, Mode.REPAIR])
async def test_an_edited_namespace_is_not_deleted_because_the_other_side_did(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler, first: Mode
) -> None:
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    await on_blue.delete(f"/namespaces/{shared.path}")
    drift = await keeper.find(mode=first) if first is Mode.REPORT else (await keeper.cycle())[0]
    assert [(conflict.resource, conflict.field) for conflict in drift.listed_conflicts] == [(f"namespace {shared}", "")]
    assert drift.listed_conflicts[0].values == {"blue": None, "green": {MAX_CONSUMERS[1]: 7}}
    for _ in range(2):
        drift, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE)
        assert (drift.plans, [conflict.field for conflict in drift.listed_conflicts]) == ({}, [""])
        assert await on_green.namespace(shared) is not None


@pytest.mark.parametrize("chosen", ["green", "blue"])
async def test_the_operator_decides_between_the_edit_and_the_deletion(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler, chosen: str
) -> None:
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    await on_blue.delete(f"/namespaces/{shared.path}")
    drift = await keeper.find(mode=Mode.REPORT)
    (conflict,) = drift.listed_conflicts
    drift, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE, choose={conflict.id: chosen})
    if chosen == "green":
        assert await held(on_blue, shared, (MAX_CONSUMERS[1],)) == {MAX_CONSUMERS[1]: 7}
    else:
        assert await on_green.namespace(shared) is not None  # a deletion still needs its own permission
        (change,) = keeper.run.artefacts.read_json(drift.plans["green"].plan)["changes"]
        await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE, allow=frozenset({change["id"]}))
        assert await on_green.namespace(shared) is None
    drift, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE)
    assert (drift.drifting, drift.conflicts) == (0, 0)


async def test_a_run_with_an_authority_does_not_settle_the_conflict(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    await on_blue.delete(f"/namespaces/{shared.path}")
    await keeper.find(mode=Mode.REPORT)
    await keeper.find(mode=Mode.REPORT, authority=Authority.parse("cluster:blue"))
    drift = await keeper.find(propagate_deletes=PropagateDeletes.APPROVE)
    assert (drift.plans, drift.conflicts) == ({}, 1)


async def test_an_edit_between_two_runs_after_the_deletion_is_asked_for_too(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await on_blue.delete(f"/namespaces/{shared.path}")
    drift, _ = await keeper.cycle()
    assert drift.conflicts == 0
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    for _ in range(3):
        drift, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE)
        assert (drift.plans, drift.conflicts) == ({}, 1)
    assert await held(on_green, shared, (MAX_CONSUMERS[1],)) == {MAX_CONSUMERS[1]: 7}


async def test_a_second_deletion_of_a_recreated_namespace_is_judged_again(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    await on_blue.delete(f"/namespaces/{shared.path}")
    drift = await keeper.find(mode=Mode.REPORT)
    await keeper.cycle(choose={drift.listed_conflicts[0].id: "green"})
    await keeper.cycle()
    await on_blue.delete(f"/namespaces/{shared.path}")
    drift, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE)
    assert (drift.conflicts, drift.plans["green"].needs_permission) == (0, 1)
