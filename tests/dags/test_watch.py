"""`watch_overrides`, run by Airflow itself beside a migration that died."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.migration.test_dead_runs import expire_leases
from tests.support.dag_runs import report, states
from tests.support.fleets import connection
from tests.support.kinds import StartClusters
from tests.support.migration import Migration, make, migration, overridden

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.runs.leases import ClusterRuns
from pulsar_fleet.cluster.runs.state_topic import update_runs
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.prepare.overrides import throttle_producers
from pulsar_fleet.migration.scope import unmigrated_namespaces
from pulsar_fleet.settings.migration import WATCH

pytestmark = [pytest.mark.migration, pytest.mark.cluster]

Play = Callable[..., Any]


def ended(restored: str, unmigrated: str = "skipped", report: str = "success") -> dict[str, str]:
    """The states of the tasks of a run that began."""
    return {
        "read_request": "success",
        "restore_dead_runs": restored,
        "find_unmigrated": unmigrated,
        "write_report": report,
    }


def test_a_dead_run_is_restored_and_the_watching_run_fails_to_alert_people(
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
    assert states(play("watch_overrides", clusters=clusters)) == ended("success")
    assert asyncio.run(now(moving)) != before
    asyncio.run(expire(moving))
    unrestored = play("watch_overrides", clusters=clusters, restore=False)
    assert states(unrestored) == ended("failed", report="failed")
    assert "Restore what a dead run left with: pulsar-fleet restore" in report(unrestored)
    assert asyncio.run(now(moving)) != before
    assert states(play("watch_overrides", clusters=clusters)) == ended("failed", report="failed")
    assert asyncio.run(now(moving)) == before
    assert states(play("watch_overrides", clusters=clusters)) == ended("success")


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
    assert set(states(play("watch_overrides")).values()) == {"skipped"}


@pytest.mark.long
def test_a_namespace_that_is_created_on_a_retired_cluster_fails_the_run(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_clusters: StartClusters
) -> None:
    moved, later = NamespaceName("acme", "moved"), NamespaceName("acme", "later")

    async def create(name: NamespaceName, *, migrated: bool) -> None:
        async with AdminClient(connection(cluster)) as admin:
            if await admin.tenant(name.tenant) is None:
                await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["old"]})
            await admin.put_namespace(name, {"replication_clusters": ["old"]})
            if migrated:
                await set_flag(admin, name, migrated=True)

    async def unmigrated() -> tuple[str, ...]:
        async with AdminClient(connection(cluster)) as admin:
            return await unmigrated_namespaces(admin)

    with start_clusters(tmp_path / "sandbox", clusters=("old",)) as sandbox:
        cluster = sandbox["old"]
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_OLD", json.dumps({"conn_type": "pulsar", "host": cluster.admin_url}))
        asyncio.run(create(moved, migrated=True))
        assert states(play("watch_overrides", retired=["pulsar_old"])) == ended("skipped", "success")
        asyncio.run(create(later, migrated=False))
        assert asyncio.run(unmigrated()) == (str(later),)
        found = play("watch_overrides", retired=["pulsar_old"])
        assert states(found) == ended("skipped", "failed", "failed")
        assert "pulsar_old is retired and has 1 namespace that no migration has moved: acme/later" in report(found)


def test_the_environment_says_which_clusters_are_watched_and_when() -> None:
    environment = {WATCH.variable: json.dumps({"schedule": None, "clusters": ["pulsar_blue"]})}
    assert (WATCH.schedule(environment), WATCH.settings(environment)["clusters"].default) == (None, ["pulsar_blue"])
    with pytest.raises(InvalidRequest, match="did you mean 'clusters'"):
        WATCH.settings({WATCH.variable: '{"cluster": []}'})
