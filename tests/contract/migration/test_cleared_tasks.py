"""Tasks that a person clears in a run that has cut over: the run comes to its end again, and plans nothing again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.support.migration import INACTIVE, LATE, RATE, publish
from tests.support.waits import monitor_until_drained, wait_replicated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.procedure import Failback, Migration
from pulsar_fleet.procedures import migration as procedures
from pulsar_fleet.procedures.procedure import Session
from pulsar_sandbox.workload.live import NumberedMessage

pytestmark = pytest.mark.cluster


def session(migration: Migration | Failback) -> Session:
    """What the steps of a run get."""
    sides = {name: (getattr(migration.clusters, name),) for name in ("blue", "green")}
    return Session(asdict(migration.request), migration.run, {}, sides)


async def migrate(migration: Migration) -> None:
    """Every task of `migrate_namespaces`, in its order."""
    await move(migration, await prepare(migration))


async def prepare(migration: Migration) -> Moves:
    """The tasks of `migrate_namespaces` before the freeze."""
    wave, _ = await migration.check_gates(await migration.select_namespaces())
    moves = Moves.from_json(migration.run.artefacts.read_json(wave.moves))
    await procedures.prepare_new(session(migration))
    await migration.recheck_gates(moves)
    return moves


async def fail_back(failback: Failback) -> None:
    """Every task of `fail_back_namespaces`, in its order."""
    await failback.check_failback()
    await failback.reopen_blue()
    checked, _ = await failback.check_gates()
    moves = Moves.from_json(failback.run.artefacts.read_json(checked))
    await procedures.prepare_new(session(failback))
    await move(failback, moves)


async def move(migration: Migration | Failback, moves: Moves) -> None:
    """What both have in common."""
    await switch(migration, moves, await copy(migration, moves))


async def copy(migration: Migration | Failback, moves: Moves) -> OriginalSettings:
    """The tasks from the freeze to the verification of the copy; returns the original settings."""
    sides, run = migration.sides, migration.run
    await procedures.freeze_old(session(migration))
    original = find_original_settings(run)
    assert original is not None
    await steps.start_replication(sides, run, moves)
    await wait_replicated(sides, run, moves, seconds=60, poll_seconds=1, progress=print)
    await steps.verify_copy(sides, run, moves)
    return original


Task = Callable[[], Awaitable[object]]


def after_the_cut_over(migration: Migration | Failback, moves: Moves, original: OriginalSettings) -> dict[str, Task]:
    """The tasks from the cut-over on, in their order."""
    sides, run = migration.sides, migration.run
    return {
        "cut_over": lambda: migration.cut_over(moves, original),
        "verify_subscriptions": lambda: steps.verify_subscriptions(sides, run, moves),
        "wait_drained": lambda: monitor_until_drained(sides, run, moves, seconds=90, poll_seconds=1),
        "verify_messages": lambda: steps.verify_messages(sides, run, moves),
        "clean_up": lambda: migration.clean_up(moves, original),
        "restore": lambda: migration.restore(),
    }


NAMES = ("cut_over", "verify_subscriptions", "wait_drained", "verify_messages", "clean_up", "restore")


async def switch(migration: Migration | Failback, moves: Moves, original: OriginalSettings) -> None:
    """The tasks from the cut-over on."""
    for task in after_the_cut_over(migration, moves, original).values():
        await task()


async def make_subscribed(on_blue: AdminClient, blue: ClusterConnection, name: NamespaceName) -> TopicName:
    """A namespace with settings of its own, and a topic with a subscription that has read nothing of 10 messages."""
    late = TopicName(name, LATE)
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"]})
    await on_blue.create_topic(late)
    await on_blue.create_subscription(late, LATE)
    await on_blue.post(f"/namespaces/{name.path}/publishRate", RATE)
    await on_blue.post(f"/{late.path}/inactiveTopicPolicies", INACTIVE)
    await asyncio.to_thread(publish, blue, late, [NumberedMessage(LATE, "key", number, 1) for number in range(10)])
    return late


@pytest.mark.long
@pytest.mark.parametrize("failed", NAMES)
async def test_a_task_failed_from_outside_after_its_work_is_entered_again(
    failed: str,
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    """Airflow can mark a deferred task as failed after it has resumed: what it did stays, and it is tried again."""
    name = new_namespace()
    late = await make_subscribed(on_blue, blue, name)
    run = Run("entered", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "stored")))
    conf = {"blue": "blue", "green": "green", "namespaces": [str(name)]}
    migration = Migration.of(conf, Sides(blue, green), run)
    run.ledger.start_run(run.id, migration.NAME, conf)
    moves = await prepare(migration)
    original = await copy(migration, moves)
    tasks = after_the_cut_over(migration, moves, original)
    assert tuple(tasks) == NAMES
    for task, work in tasks.items():
        await work()
        if task == failed:
            await work()

    documents = [await admin.namespace(name) or {} for admin in (on_blue, on_green)]
    assert [bool(document.get("migrated")) for document in documents] == [True, False]
    rates = [await admin.get(f"/namespaces/{name.path}/publishRate") for admin in (on_blue, on_green)]
    assert [rate["publishThrottlingRateInMsg"] for rate in rates] == [RATE["publishThrottlingRateInMsg"]] * 2
    statistics = await on_green.stats(late)
    assert statistics["subscriptions"][LATE]["msgBacklog"] == 10
    await asyncio.to_thread(publish, green, late, [NumberedMessage(LATE, "key", 10, 1)])
    assert (await on_green.stats(late))["subscriptions"][LATE]["msgBacklog"] == 11


async def test_a_run_cleared_from_its_first_task_after_cut_over_ends_as_before(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    name = new_namespace()
    late = await make_subscribed(on_blue, blue, name)

    run = Run("cleared", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "stored")))
    conf = {"blue": "blue", "green": "green", "namespaces": [str(name)]}
    migration = Migration.of(conf, Sides(blue, green), run)
    run.ledger.start_run(run.id, migration.NAME, conf)
    await migrate(migration)
    ended = [await admin.namespace(name) for admin in (on_blue, on_green)]
    plan = run.stored("moves.json")
    await migrate(migration)
    assert [await admin.namespace(name) for admin in (on_blue, on_green)] == ended
    assert run.stored("moves.json") == plan
    assert (await on_green.stats(late))["subscriptions"][LATE]["msgBacklog"] == 10
    run.ledger.finish_run(run.id, "success")

    run = replace(run, id="returned")
    failback = Failback.of({**conf, "allow_removal": True, "strategy": "redirect"}, Sides(blue, green), run)
    await on_green.post(f"{late.subscription_path(LATE)}/skip_all")
    run.ledger.start_run(run.id, failback.NAME, conf)
    await fail_back(failback)
    ended = [await admin.namespace(name) for admin in (on_blue, on_green)]
    assert [(document or {}).get("migrated") for document in ended] == [False, True]
    await asyncio.to_thread(publish, blue, late, [NumberedMessage(LATE, "key", 10, 1)])
    await fail_back(failback)
    assert [await admin.namespace(name) for admin in (on_blue, on_green)] == ended
    assert (await on_blue.stats(late))["msgInCounter"] == 1
