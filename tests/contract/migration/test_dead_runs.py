"""Runs that die leave records on the cluster: others recognise them, are kept out, and restore what was overridden."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.contract.migration.test_crash import Undisturbed, run_and_kill, steps, undisturbed
from tests.contract.planning.test_crash import Killer
from tests.support.migration import INACTIVE, LATE, RATE, TOPIC_RATE, UNREAD, Migration, make, migration, overridden

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.leases import ClusterRuns
from pulsar_fleet.cluster.runs.overrides import PROPERTY, QUIESCED_RATE
from pulsar_fleet.cluster.runs.state_topic import read_runs, update_runs
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.links.cluster_lists import allow_cluster, begin_replication, end_replication, register_cluster
from pulsar_fleet.migration.model import Phase
from pulsar_fleet.migration.prepare.dead_runs import find_overrides, restore_kept_policies, restore_overrides
from pulsar_fleet.migration.prepare.lease import held, release, renew
from pulsar_fleet.migration.prepare.overrides import throttle_producers
from pulsar_fleet.migration.steps import restore_blue
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_sandbox.workload import drain_subscription
from pulsar_sandbox.workload.live import AUDIT, EVENTS

pytestmark = pytest.mark.cluster

__all__ = ["undisturbed"]

NewNamespace = Callable[[], NamespaceName]
# More points by environment; each number is another moment.
POINTS = range(int(os.environ.get("PULSAR_FLEET_MIGRATION_CRASH_POINTS", "2")))
REDACTOR = Redactor(b"a key of the tests, 32 characters")


@pytest.fixture
async def moving(
    blue: ClusterConnection, green: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> Migration:
    """A namespace that can move."""
    name = new_namespace()
    await make(blue, green, name)
    return migration(blue, green, name, tmp_path)


def another_run(moving: Migration, folder: Path, run: str = "other") -> Migration:
    """A migration of the same namespace from another Airflow, with a ledger of its own."""
    own = migration(moving.sides.blue, moving.sides.green, moving.namespace, folder / "other-home")
    return replace(own, run=replace(own.run, id=run))


async def expire_leases(admin: AdminClient, name: NamespaceName) -> None:
    """Let the time of a lease pass."""

    async def expire(runs: ClusterRuns) -> ClusterRuns:
        lease = replace(runs.leases[str(name)], expires=time.time() - 1)
        return replace(runs, leases={**runs.leases, str(name): lease})

    await update_runs(admin, expire)


async def snapshot(admin: AdminClient, name: NamespaceName) -> Snapshot:
    return await collect(admin, Selection(namespaces=frozenset({name})), redactor=REDACTOR)


@pytest.mark.long
async def test_a_second_run_waits_for_the_end_of_the_first_whatever_its_ledger(
    moving: Migration, tmp_path: Path
) -> None:
    other = another_run(moving, tmp_path)
    await moving.freeze_blue()
    with pytest.raises(PreconditionFailed, match=f"{moving.namespace} on blue is being changed by the run 'moved'"):
        await other.freeze_blue()
    await moving.restore_blue()
    await release(moving.sides, moving.run)
    await other.freeze_blue()
    with pytest.raises(PreconditionFailed, match="being changed by the run 'other'"):
        await moving.switch()
    await other.restore_blue()
    await release(other.sides, other.run)


async def test_who_is_refused_on_green_keeps_nothing_on_blue(
    moving: Migration, on_blue: AdminClient, tmp_path: Path
) -> None:
    other, name = another_run(moving, tmp_path), str(moving.namespace)
    await renew(replace(other.sides, blue=other.sides.green), other.run, [name])
    with pytest.raises(PreconditionFailed, match=f"{name} on green is being changed by the run 'other'"):
        await renew(moving.sides, moving.run, [name])
    assert name not in (await read_runs(on_blue)).leases
    await release(other.sides, other.run)


@pytest.mark.parametrize("written", [False, True])
async def test_a_step_that_is_stopped_before_a_write_gives_up_its_lease(
    moving: Migration, on_blue: AdminClient, on_green: AdminClient, *, written: bool
) -> None:
    async def stopped() -> None:
        async with held(moving.sides, moving.run, [moving.namespace]):
            if written:
                moving.run.ledger.enter_phase(moving.run.id, str(moving.namespace), Phase.PREPARED)
            await asyncio.sleep(60)

    step = asyncio.create_task(stopped())
    name = str(moving.namespace)
    while name not in (await read_runs(on_green)).leases:
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    for admin in (on_blue, on_green):
        assert (name in (await read_runs(admin)).leases) is written
    await release(moving.sides, moving.run)


@pytest.mark.long
async def test_of_many_runs_at_once_exactly_one_gets_the_namespace(moving: Migration, tmp_path: Path) -> None:
    runs = [another_run(moving, tmp_path / str(number), run=f"run {number}") for number in range(5)]
    taking = (renew(run.sides, run.run, [str(moving.namespace)]) for run in runs)
    results = await asyncio.gather(*taking, return_exceptions=True)
    assert [type(result) for result in results if isinstance(result, Exception)] == [PreconditionFailed] * 4
    for run in runs:
        await release(run.sides, run.run)


@pytest.mark.long
async def test_the_last_of_two_runs_restores_the_settings_of_the_brokers(
    moving: Migration,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    on_blue: AdminClient,
    tmp_path: Path,
) -> None:
    name = new_namespace()
    await make(blue, green, name)
    second = migration(blue, green, name, tmp_path / "second")
    second = replace(second, run=replace(second.run, id="second"))
    before = await on_blue.dynamic_overrides()
    await moving.freeze_blue()
    await second.freeze_blue()
    frozen = await on_blue.dynamic_overrides()
    assert frozen["loadBalancerSheddingEnabled"] == "false"
    await moving.restore_blue()
    await release(moving.sides, moving.run)
    assert await on_blue.dynamic_overrides() == frozen
    await second.restore_blue()
    await release(second.sides, second.run)
    assert await on_blue.dynamic_overrides() == before


@pytest.mark.long
async def test_an_override_of_a_dead_run_is_neither_copied_nor_kept_as_original(
    moving: Migration, on_blue: AdminClient, on_green: AdminClient, tmp_path: Path
) -> None:
    before = await overridden(on_blue, moving.namespace)
    original = await snapshot(on_blue, moving.namespace)
    await moving.freeze_blue()
    await throttle_producers(on_blue, moving.namespace, moving.before())
    await register_cluster(on_blue, "green", moving.sides.green)
    await allow_cluster(on_blue, moving.namespace.tenant, "green")
    during = await snapshot(on_blue, moving.namespace)
    assert [tenant.allowed_clusters for tenant in during.tenants] == [("blue",)]
    assert (await overridden(on_blue, moving.namespace))["namespace publishRate"] == QUIESCED_RATE
    assert plan_changes(original, await snapshot(on_green, moving.namespace)).id == (
        plan_changes(during, await snapshot(on_green, moving.namespace)).id
    )
    await expire_leases(on_blue, moving.namespace)
    await expire_leases(on_green, moving.namespace)
    other = another_run(moving, tmp_path)
    await other.freeze_blue()
    stored = other.before()
    assert stored.publish_rates == {str(moving.namespace): RATE}
    assert stored.topic_rates == {str(moving.topic(EVENTS)): TOPIC_RATE}
    await other.restore_blue()
    await release(other.sides, other.run)
    assert await overridden(on_blue, moving.namespace) == before
    assert PROPERTY not in ((await on_blue.namespace(moving.namespace)) or {}).get("properties", {})


async def test_a_dead_run_is_restored_without_its_ledger_and_a_live_one_is_kept(
    moving: Migration, on_blue: AdminClient, on_green: AdminClient
) -> None:
    before, name = await overridden(on_blue, moving.namespace), str(moving.namespace)
    await moving.freeze_blue()
    await throttle_producers(on_blue, moving.namespace, moving.before())
    live = {namespace.name: namespace for namespace in (await find_overrides(on_blue)).namespaces}[name]
    assert live.is_live
    address = urlsplit(moving.sides.blue.admin_url).netloc
    async with AdminClient(replace(moving.sides.blue, name=address)) as by_url:
        # As the terminal takes it.
        assert (await find_overrides(by_url)).cluster == moving.sides.blue.admin_url
    assert live.overridden == ("publish rate", "inactive-topic policies")
    await restore_overrides(on_blue)
    assert (await overridden(on_blue, moving.namespace))["namespace publishRate"] == QUIESCED_RATE
    restored = await restore_overrides(on_blue, ended=moving.run.id)
    assert f"publish rate of {name}" in restored.restored
    assert await overridden(on_blue, moving.namespace) == before
    assert name not in (await read_runs(on_blue)).leases
    assert (await restore_overrides(on_blue, ended=moving.run.id)).restored == ()
    await restore_overrides(on_green, ended=moving.run.id)


@pytest.mark.long
async def test_a_dead_run_that_restores_leaves_alone_what_the_next_run_overrides(
    moving: Migration, on_blue: AdminClient, on_green: AdminClient, tmp_path: Path
) -> None:
    before, name = await overridden(on_blue, moving.namespace), moving.namespace
    await moving.freeze_blue()
    for admin in (on_blue, on_green):
        await expire_leases(admin, name)
    other = another_run(moving, tmp_path)
    await other.freeze_blue()
    await throttle_producers(on_blue, name, other.before())
    await register_cluster(on_blue, "green", moving.sides.green)
    await allow_cluster(on_blue, name.tenant, "green")
    during = await overridden(on_blue, name), await on_blue.namespace(name), await on_blue.tenant(name.tenant)
    assert await moving.restore_blue() == ()
    assert (await overridden(on_blue, name), await on_blue.namespace(name), await on_blue.tenant(name.tenant)) == during
    await other.restore_blue()
    assert await overridden(on_blue, name) == before
    await release(other.sides, other.run)


@pytest.mark.long
async def test_overrides_of_an_earlier_move_are_restored_unless_a_run_has_them(
    moving: Migration, on_blue: AdminClient, on_green: AdminClient
) -> None:
    before, name = await overridden(on_blue, moving.namespace), str(moving.namespace)
    await moving.freeze_blue()
    frozen = await overridden(on_blue, moving.namespace)
    assert await restore_kept_policies(on_blue, [name]) == ()
    assert await overridden(on_blue, moving.namespace) == frozen
    await expire_leases(on_blue, moving.namespace)
    assert len(await restore_kept_policies(on_blue, [name])) == 2
    restored = await overridden(on_blue, moving.namespace)
    assert {**restored, "dynamic": None} == {**before, "dynamic": None}
    for admin in (on_blue, on_green):
        await restore_overrides(admin, ended=moving.run.id)


async def test_a_tenant_in_which_a_live_run_works_keeps_its_clusters(
    moving: Migration, blue: ClusterConnection, green: ClusterConnection, on_blue: AdminClient, tmp_path: Path
) -> None:
    """The live run has allowed the cluster, and replicates a namespace to it next."""
    second = NamespaceName(moving.namespace.tenant, "second")
    await make(blue, green, second)
    await moving.freeze_blue()
    other = migration(blue, green, second, tmp_path / "second")
    other = replace(other, run=replace(other.run, id="second"))
    await other.freeze_blue()
    await register_cluster(on_blue, "green", moving.sides.green)
    await allow_cluster(on_blue, second.tenant, "green")
    await restore_overrides(on_blue, ended=moving.run.id)
    assert {*(await on_blue.tenant(second.tenant) or {})["allowedClusters"]} == {"blue", "green"}
    await restore_overrides(on_blue, ended=other.run.id)
    assert (await on_blue.tenant(second.tenant) or {})["allowedClusters"] == ["blue"]
    for move in (moving, other):
        await release(move.sides, move.run)


@pytest.mark.long
async def test_the_last_of_two_runs_in_a_tenant_restores_what_the_first_allowed(
    moving: Migration, blue: ClusterConnection, green: ClusterConnection, on_blue: AdminClient, tmp_path: Path
) -> None:
    second = NamespaceName(moving.namespace.tenant, "second")
    await make(blue, green, second)
    before = await on_blue.tenant(second.tenant)
    await moving.freeze_blue()
    await register_cluster(on_blue, "green", moving.sides.green)
    await allow_cluster(on_blue, second.tenant, "green")
    other = migration(blue, green, second, tmp_path / "second")
    other = replace(other, run=replace(other.run, id="second"))
    await other.freeze_blue()
    await begin_replication(on_blue, "blue", second, "green")
    await moving.restore_blue()
    assert await on_blue.tenant(second.tenant) != before
    await end_replication(on_blue, "blue", second, "green", ["blue"])
    await other.restore_blue()
    assert await on_blue.tenant(second.tenant) == before
    for move in (moving, other):
        await release(move.sides, move.run)


async def test_a_list_of_a_topic_that_a_dead_run_extended_is_shortened_again(
    moving: Migration, on_blue: AdminClient, on_green: AdminClient
) -> None:
    """The namespace was replicated before, this topic was not."""
    name, topic = moving.namespace, moving.topic(AUDIT)
    await register_cluster(on_blue, "green", moving.sides.green)
    await allow_cluster(on_blue, name.tenant, "green")
    await on_blue.post(f"/namespaces/{name.path}/replication", ["blue", "green"])
    await on_blue.post(f"/{topic.path}/replication", ["blue"])
    await moving.freeze_blue()
    assert moving.before().own_lists(name) == {topic: ["blue"]}
    await begin_replication(on_blue, "blue", name, "green", moving.before().own_lists(name))
    assert sorted(await on_blue.get(f"/{topic.path}/replication")) == ["blue", "green"]
    assert (await restore_overrides(on_blue, ended=moving.run.id)).replicating == (str(name),)
    await restore_overrides(on_green, ended=moving.run.id)
    again = replace(moving, run=replace(moving.run, id="again"))
    await again.freeze_blue()
    assert again.before().own_lists(name) == {topic: ["blue"]}
    assert not (await restore_overrides(on_blue, ended="again", stop_replication=True)).replicating
    document = await on_blue.namespace(name) or {}
    assert (sorted(document["replication_clusters"]), document["properties"]) == (["blue", "green"], {})
    assert await on_blue.get(f"/{topic.path}/replication") == ["blue"]
    await on_blue.post(f"/namespaces/{name.path}/replication", ["blue"])
    await restore_overrides(on_green, ended="again")


@pytest.mark.long
async def test_what_somebody_set_since_stays(moving: Migration, on_blue: AdminClient, on_green: AdminClient) -> None:
    await moving.freeze_blue()
    await throttle_producers(on_blue, moving.namespace, moving.before())
    theirs = {"publishThrottlingRateInMsg": 77, "publishThrottlingRateInByte": -1}
    await on_blue.post(f"/namespaces/{moving.namespace.path}/publishRate", theirs)
    for admin in (on_blue, on_green):
        await restore_overrides(admin, ended=moving.run.id)
    assert (await overridden(on_blue, moving.namespace))["namespace publishRate"] == theirs


@pytest.mark.long
async def test_a_finished_migration_that_is_cut_over_again_freezes_nothing(
    moving: Migration, on_blue: AdminClient, blue: ClusterConnection
) -> None:

    before = await overridden(on_blue, moving.namespace)
    await moving.freeze_blue()
    await moving.switch()
    await asyncio.to_thread(drain_subscription, blue, moving.topic(LATE), LATE, at_least=UNREAD)
    await moving.monitor_until_drained()
    kept = await restore_blue(moving.sides, moving.run, moving.before(), delete_topics=False)
    assert "loadBalancerSheddingEnabled" in kept
    await release(moving.sides, moving.run)
    await moving.switch()
    assert await on_blue.dynamic_overrides() == before["dynamic"]
    await release(moving.sides, moving.run)
    # Consumers by pattern would lose topics that blue deletes: its policies stay until a person restores them.
    name, audit = str(moving.namespace), f"/{moving.topic(AUDIT).path}/inactiveTopicPolicies"
    assert (await on_blue.get(audit))["deleteWhileInactive"] is False
    assert (await restore_overrides(on_blue, namespaces=[name])).restored == ()
    await restore_overrides(on_blue, namespaces=[name], delete_inactive_topics=True)
    assert await on_blue.get(audit) == INACTIVE
    assert await overridden(on_blue, moving.namespace) == before


@pytest.mark.long
@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
async def test_a_run_killed_at_any_moment_leaves_every_setting_as_it_was(
    point: int,
    undisturbed: Undisturbed,
    moving: Migration,
    on_blue: AdminClient,
    on_green: AdminClient,
    tmp_path: Path,
) -> None:
    dice, name = random.Random(f"dead run {point}"), moving.namespace
    before, original = await overridden(on_blue, name), await snapshot(on_blue, name)
    killer = Killer(moving.sides.blue.admin_url, at=dice.randint(1, undisturbed.requests), dice=dice)
    await run_and_kill(moving, tmp_path, killer)

    during = await snapshot(on_blue, name)
    assert [comparable(state.policies, "blue") for state in during.namespaces] == [
        comparable(state.policies, "blue") for state in original.namespaces
    ]
    assert [state.policies for state in during.topic_policies] == [state.policies for state in original.topic_policies]
    other, leases = another_run(moving, tmp_path), (await read_runs(on_blue)).leases
    if str(name) in leases:
        with pytest.raises(PreconditionFailed, match="being changed by the run 'moved'"):
            await other.freeze_blue()
    match dice.choice(["continued", "restored", "followed by another run"]):
        case "continued":
            await steps(moving)
        case "restored":
            for admin in (on_blue, on_green):
                await restore_overrides(admin, ended=moving.run.id, namespaces=[str(name)], delete_inactive_topics=True)
        case _:
            for admin in (on_blue, on_green):
                if str(name) in (await read_runs(admin)).leases:
                    await expire_leases(admin, name)
            await steps(other)
    for run in (moving, other):
        await release(run.sides, run.run)
    assert await overridden(on_blue, name) == before
    assert PROPERTY not in ((await on_blue.namespace(name)) or {}).get("properties", {})
    for admin in (on_blue, on_green):
        assert str(name) not in (await read_runs(admin)).leases
