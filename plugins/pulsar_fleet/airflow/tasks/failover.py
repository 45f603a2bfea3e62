"""The tasks of `fail_over_applications`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context

from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)
PROCEDURE = "fail_over_applications"


def sides_of(params: dict[str, Any]) -> tuple[ClusterConnection, ClusterConnection]:
    """The cluster that applications leave, and the one that they connect to."""
    return cluster_connection(params["origin"]), cluster_connection(params["target"])


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse an invalid configuration: unknown keys, connections or names, one cluster twice."""
    from pulsar_fleet.airflow.conf import refuse_same_cluster
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.replication.failover.measure import cluster_names
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Selection.parse(params["selection"])
    names = asyncio.run(cluster_names(*sides_of(params)))
    refuse_same_cluster(params["origin"], params["target"], names)
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))


@task
def forecast(params: dict[str, Any]) -> JsonObject:
    """Forecast what is redelivered and lost if the applications move; nothing is changed."""
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.replication.failover import steps

    run, selection = current_run(get_current_context()), Selection.parse(params["selection"])
    announced = asyncio.run(steps.announce_failover(*sides_of(params), selection, run))
    log.info("%s\n%s", announced.headline, run.artefacts.read(announced.text).decode())
    return announced.to_json()


@task
def prepare_target(params: dict[str, Any]) -> JsonObject:
    """Create the replicated subscriptions that the target lacks, and forecast again; fail while consumers are left."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.report import forecast_body, not_ready, prepared_text

    run, selection = current_run(get_current_context()), Selection.parse(params["selection"])
    prepared, ready = asyncio.run(steps.prepare_target(*sides_of(params), selection, run))
    if reason := not_ready(ready, accept_lost=params["accept_lost"]):
        raise PreconditionFailed(reason)
    log.info("%s\n%s", prepared_text(prepared), forecast_body(ready))
    return {"created": len(prepared.subscriptions), "redelivered": ready.redelivered, "lost": ready.lost}


@task
def read_outcome(params: dict[str, Any]) -> JsonObject:
    """Compare what each subscription got with the forecast."""
    from pulsar_fleet.replication.failover import steps

    outcome = asyncio.run(steps.record_outcome(*sides_of(params), current_run(get_current_context())))
    return {"agreement": outcome.agreement.value, "subscriptions": len(outcome.rows())}


@task(trigger_rule="all_done")
def write_report() -> str:
    """Report the outcome and the forecasts; fail if a task failed."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.replication.failover.records import read_records
    from pulsar_fleet.report.failover import failover_report
    from pulsar_fleet.report.page import store_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    report = failover_report(read_records(run), read_approval(run), failed)
    store_report(run, report)
    finish_run(context, failed)
    return report.markdown()
