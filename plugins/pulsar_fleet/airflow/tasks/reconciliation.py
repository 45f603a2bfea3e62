"""The tasks of `reconcile_policies`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Stats
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.assets import POLICIES_CHANGED, emit_policies_changed
from pulsar_fleet.airflow.conf import clusters_of
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)

PROCEDURE = "reconcile_policies"
METRICS = "pulsar_fleet.reconcile"


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse an invalid configuration: unknown keys, connections or authority."""
    from pulsar_fleet.policy_sync.reconcile.request import Request
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Request.of(params)
    clusters_of(params)
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))


@task(outlets=[POLICIES_CHANGED])
def repair(params: dict[str, Any], drift: JsonObject) -> JsonObject:
    """Write only the different fields, and read them back; skipped without drift or if the mode is not `repair`."""
    from pulsar_fleet.policy_sync.reconcile import steps
    from pulsar_fleet.policy_sync.reconcile.request import Mode, Request
    from pulsar_fleet.policy_sync.reconcile.results import DriftSummary

    request, summary = Request.of(params), DriftSummary.from_json(drift)
    if request.mode is not Mode.REPAIR or not summary.drift:
        raise AirflowSkipException("There is nothing to write.")
    run = current_run(get_current_context())
    repaired = asyncio.run(steps.repair(clusters_of(params), summary, request, run))
    emit_policies_changed(repaired.changed, run.id)
    for problem in repaired.problems:
        log.warning("%s", problem)
    return repaired.to_json()


@task(trigger_rule="all_done")
def write_report(params: dict[str, Any]) -> str:
    """Report differences and writes; fail if a cluster is unreachable, a write failed, or drift must fail the run."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.policy_sync.reconcile import steps
    from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
    from pulsar_fleet.report.failure import failed_report
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.reconciliation import failure, metrics, reconciliation_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    results = {name: context["ti"].xcom_pull(task_ids=name) for name in ("find_drift", "repair")}
    if results["find_drift"] is None:
        state = "Nothing was compared, nothing has been changed."
        report = failed_report(failed, state)
        store_report(run, report)
        finish_run(context, failed)
        return report.markdown()
    drift = DriftSummary.from_json(results["find_drift"])
    repaired = RepairSummary.from_json(results["repair"]) if results["repair"] else None
    for name, value in metrics(drift, repaired).items():
        Stats.gauge(f"{METRICS}.{name}", value)
    report = reconciliation_report(drift, steps.read_plans(drift, run), repaired)
    if drift.drift or drift.behind or failed:
        # A run without drift needs no page.
        store_report(run, report)
    if not failed and (reason := failure(drift, repaired, fail_on_drift=params["fail_on_drift"])):
        run.ledger.finish_run(run.id, "failed")
        raise PreconditionFailed(reason)
    finish_run(context, failed)
    return report.markdown()
