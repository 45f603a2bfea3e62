"""The tasks of `migrate_namespaces`, and those that `fail_back_namespaces` runs with the clusters in reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.assets import MIGRATED, emit_migrated
from pulsar_fleet.airflow.conf import inputs_of, moves_of, original_settings_of, procedure_of
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.model import Moves

Result = TypeVar("Result")


@task
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse an invalid configuration: unknown keys, unknown connections or namespaces, one cluster twice."""
    from pulsar_fleet.airflow.conf import require_two_clusters
    from pulsar_fleet.migration.procedure import Migration
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Migration.validate(params)
    migration = Migration.of(*inputs_of(context))
    clusters = asyncio.run(require_two_clusters(params["blue"], params["green"], ()))
    names = asyncio.run(migration.select_namespaces())
    migration.run.ledger.start_run(migration.run.id, migration.NAME, dict(params))
    return {**clusters, "namespaces": [str(name) for name in names]}


@task(multiple_outputs=True)
def check_gates(request: JsonObject) -> JsonObject:
    """Evaluate every gate and plan the waves; a blocker stops the run. Nothing has been changed."""
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.migration.procedure import Migration
    from pulsar_fleet.preflight.findings import count_line

    migration = Migration.of(*inputs_of(get_current_context()))
    names = [NamespaceName.parse(text) for text in request["namespaces"]]
    wave, findings = asyncio.run(migration.check_gates(names))
    return {**wave.to_json(), "findings": count_line(findings)}


@task
def prepare_green(checked: JsonObject) -> JsonObject:
    """Create on the new cluster what the clients need and it lacks."""
    from pulsar_fleet.migration.steps import prepare_green

    return _run_step(prepare_green, checked)


@task
def recheck_gates(checked: JsonObject) -> str:
    """Evaluate every gate again, now that green is prepared; a new blocker stops the run."""
    from pulsar_fleet.preflight.findings import count_line

    return count_line(asyncio.run(procedure_of(get_current_context()).recheck_gates(moves_of(checked["moves"]))))


@task
def freeze_blue(checked: JsonObject) -> JsonObject:
    """Turn off what could unload or delete a topic on the old cluster; stores the original settings."""
    from pulsar_fleet.migration.steps import freeze_blue

    return _run_step(freeze_blue, checked).to_json()


@task
def start_replication(checked: JsonObject) -> int:
    """Replicate stored messages to the new cluster, where the strategy of the namespace requires it."""
    from pulsar_fleet.migration.steps import start_replication

    return _run_step(start_replication, checked)


@task
def cut_over(checked: JsonObject, before: JsonObject) -> JsonObject:
    """Quiesce the producers, transfer the cursors, redirect the clients. The point of no return."""
    procedure = procedure_of(get_current_context())
    return asyncio.run(procedure.cut_over(moves_of(checked["moves"]), original_settings_of(before))).to_json()


@task
def verify_subscriptions(checked: JsonObject) -> JsonObject:
    """Compare the cursors of subscriptions without consumers on both clusters, right after the cut-over."""
    from pulsar_fleet.migration.steps import verify_subscriptions

    return _run_step(verify_subscriptions, checked)


@task(outlets=[MIGRATED])
def clean_up_blue(checked: JsonObject, before: JsonObject) -> JsonObject:
    """End replication, remove from the old cluster what continues on the new one, and list the leftovers."""
    procedure, moves = procedure_of(get_current_context()), moves_of(checked["moves"])
    result = asyncio.run(procedure.clean_up(moves, original_settings_of(before)))
    emit_migrated(procedure.run, moves)
    return result


@task(trigger_rule="all_done")
def restore_blue() -> list[str]:
    """Restore every setting and rate limit that the run changed on the old cluster, also after a failed run."""
    restored = asyncio.run(procedure_of(get_current_context()).restore())
    if restored is None:
        raise AirflowSkipException("The run changed no setting.")
    return list(restored)


@task(trigger_rule="all_done")
def write_report() -> str:
    """Write the report from the ledger; fail if a task failed."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.report.migration import store_migration_report

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    report = store_migration_report(run, failed, read_approval(run))
    finish_run(context, failed)
    return report.markdown()


@task(multiple_outputs=True)
def plan_next_run(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """The configuration of the run for the next wave; skipped after the last wave, or if `next_waves` is off."""
    from pulsar_fleet.migration.procedure import Migration

    if checked["next"] is None:
        raise AirflowSkipException("This was the last wave.")
    if not params["next_waves"]:
        raise AirflowSkipException(
            f"The setting 'next_waves' is off: start wave {checked['next']} by hand with continues and wave."
        )
    migration = Migration.of(*inputs_of(get_current_context()))
    run_id, settings = migration.next_run(checked["next"])
    return {"run_id": run_id.partition("/")[2], "conf": {**params, **settings}}


def _run_step(step: Callable[[Sides, Run, Moves], Awaitable[Result]], checked: JsonObject) -> Result:
    """Run a step that needs no setting of the run."""
    procedure = procedure_of(get_current_context())

    async def run() -> Result:
        return await step(procedure.sides, procedure.run, moves_of(checked["moves"]))

    return asyncio.run(run())
