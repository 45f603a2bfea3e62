"""A migration that is killed with SIGKILL at any moment is finished by the next attempt, or undone by the teardown."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.contract.planning.test_crash import Killer
from tests.support.migration import LATE, UNREAD, Migration, make, migration, overridden

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.workload import drain_subscription

pytestmark = pytest.mark.long

NewNamespace = Callable[[], NamespaceName]
# More points by environment; each number is another moment.
FIRST = int(os.environ.get("PULSAR_FLEET_MIGRATION_CRASH_FIRST", "0"))
POINTS = range(FIRST, FIRST + int(os.environ.get("PULSAR_FLEET_MIGRATION_CRASH_POINTS", "2")))


@dataclass(frozen=True)
class Undisturbed:
    """The state after a migration without a kill, and its number of requests to blue."""

    state: Any
    requests: int


async def steps(moving: Migration) -> None:
    """From the freeze to the teardown."""
    await moving.freeze_blue()
    await moving.switch()
    await moving.monitor_drain()
    await moving.restore_blue()


async def final_state(moving: Migration, on_blue: AdminClient, on_green: AdminClient) -> Any:
    """Everything on both clusters that the migration is about; reads what was left unread on blue."""
    state: dict[str, Any] = {"overridden": await overridden(on_blue, moving.namespace)}
    for side, admin in (("blue", on_blue), ("green", on_green)):
        state[f"{side} policies"] = await admin.namespace(moving.namespace)
        for topic in moving.moves.moves[0].partitions:
            stats = await admin.stats(topic)
            backlog = {name: subscription["msgBacklog"] for name, subscription in stats["subscriptions"].items()}
            state[f"{side} {topic.local}"] = {
                # Blue forgets one that was read to the end within a check period.
                "subscriptions": {name: count for name, count in backlog.items() if count or side == "green"},
                "properties": (await admin.internal_info(topic)).get("properties"),
            }
    blue = moving.sides.blue
    state["unread"] = await asyncio.to_thread(drain_subscription, blue, moving.topic(LATE), LATE, at_least=UNREAD)
    return state


def in_a_process(blue: ClusterConnection, green: ClusterConnection, name: NamespaceName, folder: Path) -> None:
    asyncio.run(steps(migration(blue, green, name, folder)))


async def run_and_kill(moving: Migration, folder: Path, killer: Killer) -> int:
    """The exit code of a process that migrates and is killed by `killer`."""
    async with killer:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__, "pulsar", "fastavro"])
        blue = replace(moving.sides.blue, admin_url=killer.url)
        process = context.Process(target=in_a_process, args=(blue, moving.sides.green, moving.namespace, folder))
        process.start()
        killer.pid = process.pid or 0
        await asyncio.to_thread(process.join, 60)
        return process.exitcode or 0


@pytest.fixture(scope="module")
def undisturbed(
    blue: ClusterConnection, green: ClusterConnection, tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed:
    async def run() -> Undisturbed:
        name, folder = NamespaceName(f"test-{os.urandom(5).hex()}", "orders"), tmp_path_factory.mktemp("undisturbed")
        await make(blue, green, name)
        moving = migration(blue, green, name, folder)
        killer = Killer(blue.admin_url, at=0, dice=random.Random(0))
        assert await run_and_kill(moving, folder, killer) == 0
        async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
            return Undisturbed(await final_state(moving, on_blue, on_green), len(killer.seen))

    return asyncio.run(run())


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_migration_is_finished_by_the_next_try_without_a_trace(
    point: int,
    undisturbed: Undisturbed,
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    tmp_path: Path,
) -> None:
    dice, name = random.Random(point), new_namespace()
    await make(blue, green, name)
    before = await overridden(on_blue, name)
    moving = migration(blue, green, name, tmp_path)
    killer = Killer(blue.admin_url, at=dice.randint(1, undisturbed.requests), dice=dice)
    # The number of polls of a step varies: the last moments may come after the end.
    assert await run_and_kill(moving, tmp_path, killer) in (-signal.SIGKILL, 0)
    if moving.run.artefacts.find(moving.run.id, "original-settings.json") is not None:
        await moving.restore_blue()
    assert await overridden(on_blue, name) == before
    await steps(moving)
    assert await final_state(moving, on_blue, on_green) == undisturbed.state
