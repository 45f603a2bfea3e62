"""The tasks of `watch_overrides` and `abort_migration`: what a run that does not go on has left."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.conf import clusters_of
from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import recorded_in_ledger
from pulsar_fleet.settings.setting import refuse_unknown_settings

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.model import Moves

log = logging.getLogger(__name__)

PROCEDURE = "watch_overrides"
ABORT = "abort_migration"
_GOES_ON = ("queued", "running")


@task
def restore_dead_runs(params: dict[str, Any]) -> str:
    """Restore what dead runs left on each cluster; fail if there was anything, so that people hear of it."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    clusters = clusters_of(params)
    if not clusters:
        raise AirflowSkipException("No cluster is watched: name connections in PULSAR_FLEET_WATCH, or in the form.")
    with recorded_in_ledger(context, PROCEDURE):
        texts = [asyncio.run(_watch(connection, restore=params["restore"])) for connection in clusters]
        if problems := [text for text in texts if text]:
            raise PreconditionFailed("\n".join(problems))
    return "No run has left anything."


@task
def find_unmigrated(params: dict[str, Any]) -> str:
    """Fail if a retired cluster has a namespace that is not migrated: its clients stay there."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    retired = [cluster_connection(name) for name in params["retired"]]
    if not retired:
        raise AirflowSkipException("No cluster is retired: name connections in PULSAR_FLEET_WATCH, or in the form.")
    if problems := [text for connection in retired if (text := asyncio.run(_unmigrated(connection)))]:
        raise PreconditionFailed("\n".join(problems))
    return "Every namespace is migrated."


@task
def abort_run(params: dict[str, Any]) -> str:
    """Undo what a migration or a failback changed; refused while it goes on, and once a topic is terminated."""
    from pulsar_fleet.cluster.text import listed
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.abort import abort_migration

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    with recorded_in_ledger(context, ABORT):
        run = Run.open(params["run"])
        _require_end(context, run)
        sides, moves = _sides_and_moves(run, params)
        asyncio.run(_require_clusters(sides, moves))
        aborted = asyncio.run(abort_migration(sides, run, moves))
        run.ledger.finish_run(run.id, "undone")
    parts = {
        "Flags cleared": aborted.flags,
        "Replication ended": aborted.replication,
        "Overrides restored": aborted.overrides,
        "Removed on the new cluster": aborted.removed,
        "Kept on the new cluster": aborted.kept,
    }
    text = "\n".join(f"{name}: {listed(resources, 20)}" for name, resources in parts.items())
    log.info("%s", text)
    return text


def _require_end(context: Context, run: Run) -> None:
    """Refuse a run that Airflow still executes: it would go on with what is undone."""
    from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed

    recorded = run.ledger.run(run.id)
    if recorded is None:
        raise NotFound(f"The ledger has no run {run.id!r}: name it as the Fleet page does, DAG/run id.")
    dag_id, _, run_id = run.id.partition("/")
    if recorded.state != "running" or dag_id == "cli":
        return
    if context["ti"].get_dagrun_state(dag_id=dag_id, run_id=run_id) in _GOES_ON:
        raise PreconditionFailed(f"{run.id} still goes on: mark it as failed in Airflow, then start this run again.")


def _sides_and_moves(run: Run, params: dict[str, Any]) -> tuple[Sides, Moves]:
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.waves.steps import recorded_moves

    moves, recorded = recorded_moves(run), run.ledger.run(run.id)
    conf = recorded.conf if recorded else {}
    blue, green = (params[side] or conf.get(side) for side in ("blue", "green"))
    if not (blue and green):
        raise InvalidRequest(f"{run.id} did not record its connections: name them under 'blue' and 'green'.")
    return Sides(cluster_connection(str(blue)), cluster_connection(str(green))), moves


async def _require_clusters(sides: Sides, moves: Moves) -> None:
    """Refuse connections that lead to other clusters than those of the run."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    async with sides.open() as admins:
        names = [await admin.cluster_name() for admin in admins]
    for side, name, recorded in zip((sides.blue, sides.green), names, (moves.blue, moves.green), strict=True):
        if name != recorded:
            raise PreconditionFailed(f"{side.name} leads to the cluster {name!r}, and the run moved {recorded!r}.")


async def _unmigrated(connection: ClusterConnection) -> str:
    """The namespaces of a retired cluster that are not migrated, and what to do; empty if all are."""
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.text import counted, listed
    from pulsar_fleet.migration.scope import unmigrated_namespaces

    async with AdminClient(connection) as admin:
        names = await unmigrated_namespaces(admin)
    if not names:
        return ""
    return (
        f"{connection.name} is retired and has {counted(len(names), 'namespace')} that no migration has moved: "
        f"{listed(names)}. Clients stay there. Migrate it with migrate_namespaces; or delete it, if nobody uses it."
    )


async def _watch(connection: ClusterConnection, *, restore: bool) -> str:
    """What was found and done on a cluster; empty if no dead run left anything."""
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.text import command_line
    from pulsar_fleet.migration.prepare.dead_runs import find_overrides, restore_overrides

    async with AdminClient(connection) as admin:
        left = await find_overrides(admin)
        log.info("%s", left.text())
        if not left.needs_restoration:
            return ""
        if not restore:
            return f"{left.text()}\nRestore what a dead run left with: {command_line('restore', connection.argument)}"
        restored = await restore_overrides(admin, unattended=True)
    if not (restored.restored or restored.replicating or restored.draining):
        return ""
    return f"{left.text()}\n{restored.text()}"
