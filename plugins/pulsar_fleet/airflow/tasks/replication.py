"""The tasks of `replicate_namespaces`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import get_current_context

from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.replication.clusters import Clusters

log = logging.getLogger(__name__)
Result = TypeVar("Result")


def with_clusters(params: dict[str, Any], work: Callable[[Clusters], Awaitable[Result]]) -> Result:
    """Call a step with all clusters of the form."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.replication.clusters import open_clusters

    groups = [[cluster_connection(name) for name in params[group]] for group in ("clusters", "receive_only", "leaving")]

    async def run() -> Result:
        async with open_clusters(*groups) as clusters:
            return await work(clusters)

    return asyncio.run(run())


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse an invalid configuration: unknown keys, connections or names, one cluster twice."""
    from pulsar_fleet.replication.request import Request
    from pulsar_fleet.replication.setup.apply import PROCEDURE
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Request.of(params)
    names = with_clusters(params, _topology)
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    log.info("%s", names)


async def _topology(clusters: Clusters) -> str:
    return ", ".join(clusters.topology.clusters)


@task
def plan_changes(params: dict[str, Any]) -> JsonObject:
    """Check every link in both directions, and plan what each cluster lacks; nothing is changed."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request
    from pulsar_fleet.replication.stored_plan import read_findings

    run = current_run(get_current_context())
    planned = with_clusters(params, lambda clusters: steps.plan(clusters, Request.of(params), run))
    for finding in read_findings(run.artefacts, planned):
        log.warning("%s", finding.text())
    log.info("%s", planned.headline)
    return planned.to_json()


@task
def apply_contents(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Create cluster data, tenants, namespaces, topics and schemas; nothing is replicated yet."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    run, stored = current_run(get_current_context()), StoredReplicationPlan.from_json(planned)
    request = Request.of(params)
    return with_clusters(params, lambda clusters: steps.apply_contents(clusters, stored, request, run)).to_json()


@task
def start_links(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Store the cluster lists, each with the name of the cluster that stores it."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    run, stored = current_run(get_current_context()), StoredReplicationPlan.from_json(planned)
    request = Request.of(params)
    return with_clusters(params, lambda clusters: steps.start_links(clusters, stored, request, run)).to_json()


@task
def confirm_links(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Load every topic; fail if a link is not connected, or is connected and sends nothing."""
    from pulsar_fleet.airflow.run import log_progress
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    run, stored = current_run(get_current_context()), StoredReplicationPlan.from_json(planned)
    progress = log_progress("links")
    return with_clusters(params, lambda clusters: steps.confirm(clusters, stored, run, progress=progress)).to_json()


@task
def end_links(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Store the lists that end links, then free tenants and cluster data that nothing uses; skipped if none ends."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    run, stored = current_run(get_current_context()), StoredReplicationPlan.from_json(planned)
    return with_clusters(params, lambda clusters: steps.end_links(clusters, stored, run)).to_json()


@task(trigger_rule="all_done")
def write_report() -> str:
    """Report findings, changes, links, and how to undo them; fail if a task failed."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.replication.setup.apply import AppliedStage
    from pulsar_fleet.replication.setup.links import ConfirmedLinks
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan
    from pulsar_fleet.replication.stored_plan import read_findings
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.planned_run import unplanned_report
    from pulsar_fleet.report.replication.setup import replication_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    results = {name: context["ti"].xcom_pull(task_ids=name) for name in ("plan_changes", "confirm_links", *STAGES)}
    if results["plan_changes"] is None:
        report = unplanned_report(failed)
    else:
        stored = StoredReplicationPlan.from_json(results["plan_changes"])
        report = replication_report(
            stored,
            run.artefacts.read(stored.text).decode(),
            read_findings(run.artefacts, stored),
            {name: AppliedStage.from_json(results[name]) for name in STAGES if results[name]},
            ConfirmedLinks.from_json(results["confirm_links"]) if results["confirm_links"] else None,
            read_approval(run),
            failed,
        )
    store_report(run, report)
    finish_run(context, failed)
    return report.markdown()


STAGES = ("apply_contents", "start_links", "end_links")
"""The tasks that change clusters, in their order."""
