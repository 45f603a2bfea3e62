"""`abort_migration`, run by Airflow itself after a migration that failed before its point of no return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.models import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from tests.support.dag_runs import report, states
from tests.support.migration import Migration, make, migration, overridden

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import MOVES
from pulsar_fleet.migration.steps import freeze_blue

pytestmark = [pytest.mark.migration, pytest.mark.cluster]

Play = Callable[..., Any]


@pytest.fixture
def moving(
    play: Play,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> Migration:
    """A migration in the ledger of the DAGs that has frozen its namespace, and its settings before."""
    name = new_namespace()
    planned = migration(blue, green, name, tmp_path)
    run = Run.open(f"migrate_namespaces/manual__{name.name}")
    run.ledger.start_run(run.id, "migrate_namespaces", {"blue": "pulsar_blue", "green": "pulsar_green"})
    run.artefacts.write_json(run.id, MOVES, planned.moves.to_json())
    return Migration(planned.sides, run, planned.moves)


def test_a_failed_migration_is_undone(play: Play, moving: Migration) -> None:
    before, frozen = asyncio.run(freeze(moving))
    assert frozen != before
    moving.run.ledger.finish_run(moving.run.id, "failed")
    undone = play("abort_migration", run=moving.run.id, auto_approve=True)
    assert set(states(undone).values()) == {"success"}
    assert report(undone).startswith(f"# {moving.run.id} is undone.")
    assert asyncio.run(settings(moving)) == before
    recorded = moving.run.ledger.run(moving.run.id)
    assert recorded
    assert recorded.state == "undone"
    assert moving.run.ledger.last_phase(str(moving.namespace)) == "aborted"


def test_a_migration_that_goes_on_is_not_undone(play: Play, moving: Migration) -> None:
    _, frozen = asyncio.run(freeze(moving))
    dag_id, _, run_id = moving.run.id.partition("/")
    running = DagRun(dag_id=dag_id, run_id=run_id, run_type=DagRunType.MANUAL, run_after=datetime.now(UTC))
    running.state = DagRunState.RUNNING
    with create_session() as session:
        session.add(running)
    # That of a failed run whose task was cleared: the ledger has the failure.
    moving.run.ledger.finish_run(moving.run.id, "failed")
    assert refused(play("abort_migration", run=moving.run.id, auto_approve=True))
    assert asyncio.run(settings(moving)) == frozen
    with create_session() as session:
        session.merge(running).state = DagRunState.FAILED
    assert set(states(play("abort_migration", run=moving.run.id, auto_approve=True)).values()) == {"success"}


def test_connections_that_lead_elsewhere_undo_nothing(play: Play, moving: Migration) -> None:
    _, frozen = asyncio.run(freeze(moving))
    moving.run.ledger.finish_run(moving.run.id, "failed")
    swapped = {"blue": "pulsar_green", "green": "pulsar_blue"}
    assert refused(play("abort_migration", run=moving.run.id, auto_approve=True, **swapped))
    assert asyncio.run(settings(moving)) == frozen
    assert set(states(play("abort_migration", run=moving.run.id, auto_approve=True)).values()) == {"success"}


def refused(run: Any) -> bool:
    """Whether its first task has failed, and nothing was undone."""
    of_tasks = states(run)
    return (of_tasks["read_request"], of_tasks["abort_run"]) == ("failed", "upstream_failed")


async def freeze(moving: Migration) -> tuple[Any, Any]:
    """The settings before and after."""
    await make(moving.sides.blue, moving.sides.green, moving.namespace)
    before = await settings(moving)
    await freeze_blue(moving.sides, moving.run, moving.moves)
    return before, await settings(moving)


async def settings(moving: Migration) -> Any:
    async with AdminClient(moving.sides.blue) as blue:
        return await overridden(blue, moving.namespace)
