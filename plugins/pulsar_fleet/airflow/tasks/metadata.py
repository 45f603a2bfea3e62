"""The tasks of `sync_metadata`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.observability import stats

from pulsar_fleet.airflow.assets import CHANGED, announce
from pulsar_fleet.airflow.conf import clusters_of
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)

PROCEDURE = "sync_metadata"
METRICS = "pulsar_fleet.metadata"


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse a configuration that cannot be meant: unknown keys, connections, an event topic that keeps nothing."""
    from pulsar_fleet.airflow.conf import refuse_unknown_settings
    from pulsar_fleet.policy_sync.events.request import Request

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Request.of(params)
    clusters_of(params)
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))


@task(outlets=[CHANGED])
def carry_changes(params: dict[str, Any]) -> JsonObject:
    """Make the event topic if need be, publish what changed on each cluster, apply what the others published."""
    from pulsar_fleet.policy_sync.events import steps
    from pulsar_fleet.policy_sync.events.request import Request

    run = current_run(get_current_context())
    found = asyncio.run(steps.synchronise(clusters_of(params), Request.of(params), run))
    announce(found["changed"], run.id)
    return found


@task(trigger_rule="all_done")
def write_report() -> str:
    """Say what was carried and what was put away; fail where an event could not be applied or a cluster is behind."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.report.metadata import failure, metadata_report, metrics
    from pulsar_fleet.report.page import keep_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    found = context["ti"].xcom_pull(task_ids="carry_changes")
    if found is None:
        report = f"# Failed in {', '.join(failed)}: the rest is carried by the next run\n"
        keep_report(run, report)
        finish_run(context, failed)
        return report
    for name, value in metrics(found).items():
        stats.gauge(f"{METRICS}.{name}", value)
    report = metadata_report(found)
    reason = failure(found)
    if reason or any(one["published"] or one["applied"] for one in found["clusters"].values()):
        # A run every few minutes that carries nothing needs no page.
        keep_report(run, report)
    if reason and not failed:
        run.ledger.finish_run(run.id, "failed")
        raise PreconditionFailed(reason)
    finish_run(context, failed)
    return report
