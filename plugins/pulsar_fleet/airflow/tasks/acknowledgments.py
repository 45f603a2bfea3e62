"""The tasks of `forward_acknowledgments`."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Stats
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run, requester

METRICS = "pulsar_fleet.forwarding"


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse an invalid configuration: unknown keys, names that are not valid, a connection that does not exist."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.airflow.operators.acknowledgments import requests_of
    from pulsar_fleet.read_only.forwarding.forwarder import PROCEDURE
    from pulsar_fleet.read_only.forwarding.request import Request
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    for settings in requests_of(params):
        Request.of(settings)
    if params["namespaces"]:
        cluster_connection(params["cluster"])
        run = current_run(context)
        run.ledger.start_run(run.id, PROCEDURE, dict(params), requester(context))


@task(trigger_rule="all_done")
def write_report() -> str:
    """Report positions and holes of both sides; fail if a topic or a position needs an operator, or a task failed."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.ledger.artefacts import Reference
    from pulsar_fleet.read_only.forwarding.results import ForwardingResult
    from pulsar_fleet.report.acknowledgments import forwarding_report, metrics
    from pulsar_fleet.report.page import store_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    reference = context["ti"].xcom_pull(task_ids="forward_acknowledgments")
    if reference is None and not failed:
        raise AirflowSkipException("Nothing is forwarded.")
    if reference is None:
        report = forwarding_report(None, failed)
        store_report(run, report)
        finish_run(context, failed)
        return report.headline
    result = ForwardingResult.from_json(run.artefacts.read_json(Reference.from_json(reference)))
    for name, value in metrics(result).items():
        Stats.gauge(f"{METRICS}.{name}", value)
    report = forwarding_report(result, failed)
    store_report(run, report)
    if result.faults() and not failed:
        run.ledger.finish_run(run.id, "failed")
        raise PreconditionFailed("\n".join(result.faults()))
    finish_run(context, failed)
    return report.headline
