"""`watch_overrides`, run by Airflow itself beside a migration that died."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.migration.test_dead_runs import expire_leases
from tests.support.dag_runs import states
from tests.support.migration import Migration, make, migration, overridden

from pulsar_fleet.airflow.params.overrides import WATCH
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.runs.leases import ClusterRuns
from pulsar_fleet.cluster.runs.state_topic import update_runs
from pulsar_fleet.migration.prepare.overrides import throttle_producers

Play = Callable[..., Any]


def test_what_a_dead_run_left_is_restored_and_the_run_fails_so_that_people_hear_of_it(
    play: Play,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    name = new_namespace()
    moving = migration(blue, green, name, tmp_path)

    async def die() -> Any:
        await make(blue, green, name)
        async with AdminClient(blue) as on_blue:
            before = await overridden(on_blue, name)
            await moving.freeze_blue()
            await throttle_producers(on_blue, name, moving.before())
            return before

    clusters = ["pulsar_blue", "pulsar_green"]
    asyncio.run(forget_other_runs(moving))
    before = asyncio.run(die())
    assert states(play("watch_overrides", clusters=clusters)) == {"restore_dead_runs": "success"}
    assert asyncio.run(now(moving)) != before
    asyncio.run(expire(moving))
    assert states(play("watch_overrides", clusters=clusters, restore=False)) == {"restore_dead_runs": "failed"}
    assert asyncio.run(now(moving)) != before
    assert states(play("watch_overrides", clusters=clusters)) == {"restore_dead_runs": "failed"}
    assert asyncio.run(now(moving)) == before
    assert states(play("watch_overrides", clusters=clusters)) == {"restore_dead_runs": "success"}


async def forget_other_runs(moving: Migration) -> None:
    """Other tests may have left runs without an end."""

    async def forget(_runs: ClusterRuns) -> ClusterRuns:
        return ClusterRuns()

    for side in (moving.sides.blue, moving.sides.green):
        async with AdminClient(side) as admin:
            await update_runs(admin, forget)


async def now(moving: Migration) -> Any:
    async with AdminClient(moving.sides.blue) as on_blue:
        return await overridden(on_blue, moving.namespace)


async def expire(moving: Migration) -> None:
    for side in (moving.sides.blue, moving.sides.green):
        async with AdminClient(side) as admin:
            await expire_leases(admin, moving.namespace)


def test_without_a_cluster_the_run_is_skipped(play: Play) -> None:
    assert states(play("watch_overrides")) == {"restore_dead_runs": "skipped"}


def test_the_environment_says_which_clusters_are_watched_and_when() -> None:
    given = {WATCH.variable: json.dumps({"schedule": None, "clusters": ["pulsar_blue"]})}
    assert (WATCH.schedule(given), WATCH.params(given)["clusters"].resolve()) == (None, ["pulsar_blue"])
    with pytest.raises(InvalidRequest, match="did you mean 'clusters'"):
        WATCH.params({WATCH.variable: '{"cluster": []}'})
