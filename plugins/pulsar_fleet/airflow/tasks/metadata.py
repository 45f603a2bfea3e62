"""The tasks of `sync_metadata`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Stats
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.assets import POLICIES_CHANGED, emit_policies_changed
from pulsar_fleet.airflow.conf import clusters_of
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run, requester, run_until_limit

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject

PROCEDURE = "sync_metadata"
METRICS = "pulsar_fleet.metadata"


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse an invalid configuration: unknown keys, unknown connections, a non-persistent event topic."""
    from pulsar_fleet.policy_sync.events.request import Request
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Request.of(params)
    clusters_of(params)
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params), requester(context))


@task(outlets=[POLICIES_CHANGED])
def sync_changes(params: dict[str, Any]) -> JsonObject:
    """Create the event topic if it is missing, publish the changes of each cluster, apply those of the others."""
    from pulsar_fleet.policy_sync.events import steps
    from pulsar_fleet.policy_sync.events.request import Request

    context = get_current_context()
    run = current_run(context)
    result = run_until_limit(context["task"], steps.synchronise(clusters_of(params), Request.of(params), run))
    emit_policies_changed(result.changed, run.id)
    return result.to_json()


@task(trigger_rule="all_done")
def write_report() -> str:
    """Report applied and dead-lettered events; fail if an event could not be applied or a cluster is behind."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.policy_sync.events.results import SyncSummary
    from pulsar_fleet.report.failure import failed_report
    from pulsar_fleet.report.metadata import failure, metadata_report, metrics
    from pulsar_fleet.report.page import store_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    document = context["ti"].xcom_pull(task_ids="sync_changes")
    if document is None:
        state = "The next run synchronises the other changes."
        report = failed_report(failed, state)
        store_report(run, report)
        finish_run(context, failed)
        return report.headline
    result = SyncSummary.from_json(document)
    for name, value in metrics(result).items():
        Stats.gauge(f"{METRICS}.{name}", value)
    report = metadata_report(result)
    reason = failure(result)
    if reason or any(tally.published or tally.applied for tally in result.clusters.values()):
        # A run without events needs no page.
        store_report(run, report)
    if reason and not failed:
        run.ledger.finish_run(run.id, "failed")
        raise PreconditionFailed(reason)
    finish_run(context, failed)
    return report.headline
