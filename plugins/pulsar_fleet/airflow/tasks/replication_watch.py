"""The tasks of `watch_replication`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Stats
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.assets import REPLICATION_CHANGED, emit_replication_changed
from pulsar_fleet.airflow.conf import clusters_of
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run
from pulsar_fleet.settings.setting import refuse_unknown_settings

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)

PROCEDURE = "watch_replication"
METRICS = "pulsar_fleet.replication"


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse an invalid configuration: unknown keys, connections or remedies; skip a run without clusters."""
    from pulsar_fleet.replication.doctor.request import Request

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Request.of(params)
    if not clusters_of(params):
        raise AirflowSkipException(
            "No cluster is watched: name connections in PULSAR_FLEET_WATCH_REPLICATION, or in the form."
        )
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))


@task(outlets=[REPLICATION_CHANGED])
def examine_replicators(params: dict[str, Any]) -> JsonObject:
    """Diagnose every replicator, and emit an asset event for each cluster whose replicators changed their state."""
    from pulsar_fleet.replication.doctor.changes import record_states
    from pulsar_fleet.replication.doctor.records import store_examination
    from pulsar_fleet.replication.doctor.request import Request
    from pulsar_fleet.replication.doctor.steps import examine
    from pulsar_fleet.replication.doctor.text import headline

    request, run = Request.of(params), current_run(get_current_context())
    examination = asyncio.run(examine(clusters_of(params), request))
    log.info("%s", headline(examination))
    changes = record_states(run, examination, params["selection"])
    for change in changes:
        log.info("%s", change.text())
    emit_replication_changed(changes, run.id)
    return store_examination(run, examination).to_json()


@task
def send_remedies(params: dict[str, Any], examination: JsonObject) -> str:
    """Send the calls of the remedies that the configuration names, and examine again; skipped without one."""
    from pulsar_fleet.ledger.artefacts import Reference
    from pulsar_fleet.replication.doctor.model import Examination
    from pulsar_fleet.replication.doctor.remedies import chosen_calls
    from pulsar_fleet.replication.doctor.request import Request
    from pulsar_fleet.replication.doctor.steps import heal

    request, run = Request.of(params), current_run(get_current_context())
    before = Examination.from_json(run.artefacts.read_json(Reference.from_json(examination)))
    if not chosen_calls(before, request.remedies):
        raise AirflowSkipException("No diagnosis has a remedy that the configuration names.")
    result = asyncio.run(heal(clusters_of(params), before, request, run))
    log.info("%s", result.text())
    return result.text()


@task(trigger_rule="all_done")
def write_report(params: dict[str, Any]) -> str:
    """Report states and causes; fail if a replicator does not work and `fail_on_fault` is set, or a task failed."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.replication.doctor.records import last_examination
    from pulsar_fleet.replication.doctor.text import examination_text
    from pulsar_fleet.report.failure import failed_report
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.replication.watch import examination_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    # A run that is tried again may have an examination of its first try only.
    examined = last_examination(run) if context["ti"].xcom_pull(task_ids="examine_replicators") else None
    if examined is None and not failed:
        raise AirflowSkipException("Nothing was examined.")
    if examined is None:
        report = failed_report(failed, "Nothing was examined.")
        store_report(run, report)
        finish_run(context, failed)
        return report.markdown()
    examination, changed = examined
    for state, number in examination.counts.items():
        Stats.gauge(f"{METRICS}.{state}", number)
    report = examination_report(examination, changed)
    store_report(run, report)
    if not failed and examination.has_fault and params["fail_on_fault"]:
        run.ledger.finish_run(run.id, "failed")
        raise PreconditionFailed(examination_text(examination, changed))
    finish_run(context, failed)
    return report.markdown()
