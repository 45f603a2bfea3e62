"""The tasks of `watch_overrides`: what a run that does not go on has left."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.conf import clusters_of
from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import recorded_in_ledger, run_until_limit
from pulsar_fleet.settings.migration import WATCH
from pulsar_fleet.settings.setting import refuse_unknown_settings

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection

log = logging.getLogger(__name__)

PROCEDURE = "watch_overrides"


@task
def restore_dead_runs(params: dict[str, Any]) -> str:
    """Restore what dead runs left on each cluster; fail if there was anything, so that people hear of it."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    clusters = clusters_of(params)
    if not clusters:
        raise AirflowSkipException(WATCH.unnamed("No cluster is watched"))
    with recorded_in_ledger(context, PROCEDURE):
        texts = [run_until_limit(context["task"], _watch(one, restore=params["restore"])) for one in clusters]
        if problems := [text for text in texts if text]:
            raise PreconditionFailed("\n".join(problems))
    return "No run has left anything."


@task
def find_unmigrated(params: dict[str, Any]) -> str:
    """Fail if a retired cluster has a namespace that is not migrated: its clients stay there."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    retired = [cluster_connection(name) for name in params["retired"]]
    if not retired:
        raise AirflowSkipException(WATCH.unnamed("No cluster is retired"))
    task_of_run = get_current_context()["task"]
    if problems := [text for one in retired if (text := run_until_limit(task_of_run, _unmigrated(one)))]:
        raise PreconditionFailed("\n".join(problems))
    return "Every namespace is migrated."


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
