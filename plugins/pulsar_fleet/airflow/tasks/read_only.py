"""The tasks of `serve_read_only`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import get_current_context

from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run
from pulsar_fleet.airflow.tasks import read_only_copy

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)
Result = TypeVar("Result")


def with_cluster(params: dict[str, Any], work: Callable[[AdminClient], Awaitable[Result]]) -> Result:
    """Call a step with the cluster of the form."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.admin.client import AdminClient

    async def run() -> Result:
        async with AdminClient(cluster_connection(params["cluster"])) as admin:
            return await work(admin)

    return asyncio.run(run())


@task
def read_request(params: dict[str, Any]) -> None:
    """Refuse an invalid configuration: unknown keys, names that cannot be served, a cluster that does not answer."""
    from pulsar_fleet.read_only.recorded_calls import PROCEDURE
    from pulsar_fleet.read_only.request import Request
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    if params["other_cluster"]:
        name = read_only_copy.read_request(params)
    else:
        Request.of(params)
        name = with_cluster(params, lambda admin: admin.cluster_name())
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    log.info("%s", name)


@task
def plan_changes(params: dict[str, Any]) -> JsonObject:
    """Check every topic, and plan what is missing or is taken away; nothing is changed."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.request import Request

    run = current_run(get_current_context())
    if params["other_cluster"]:
        return read_only_copy.plan_changes(params, run)
    planned = with_cluster(params, lambda admin: steps.plan(admin, Request.of(params), run))
    for finding in steps.read_findings(run.artefacts, planned):
        log.warning("%s", finding.text())
    log.info("%s", planned.headline)
    return planned.to_json()


@task
def create_topics(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Load the sources, then create the namespace and the shadow topics; nothing is linked yet."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan

    run = current_run(get_current_context())
    if params["other_cluster"]:
        return read_only_copy.create_topics(params, planned, run)
    stored = StoredReadOnlyPlan.from_json(planned)
    return with_cluster(params, lambda admin: steps.create_topics(admin, stored, run)).to_json()


@task
def confirm_brokers(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """With brokers of its own: fail if a shadow topic is not on one of them; bundles that are elsewhere are moved."""
    from pulsar_fleet.airflow.run import log_progress
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan

    run = current_run(get_current_context())
    if params["other_cluster"]:
        return {}
    stored, progress = StoredReadOnlyPlan.from_json(planned), log_progress("topics")
    return with_cluster(params, lambda admin: steps.confirm_brokers(admin, stored, run, progress=progress)).to_json()


@task
def link_topics(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Link the shadow topics, if their namespace keeps everything."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan

    run = current_run(get_current_context())
    if params["other_cluster"]:
        return read_only_copy.link_topics(params, planned, run)
    stored = StoredReadOnlyPlan.from_json(planned)
    return with_cluster(params, lambda admin: steps.link_topics(admin, stored, run)).to_json()


@task
def confirm_links(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Fail if a link is not alive, or a reader gets no message although the source has some."""
    from pulsar_fleet.airflow.run import log_progress
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan

    run, progress = current_run(get_current_context()), log_progress("links")
    if params["other_cluster"]:
        return read_only_copy.confirm_links(params, planned, run, progress)
    stored = StoredReadOnlyPlan.from_json(planned)
    return with_cluster(params, lambda admin: steps.confirm(admin, stored, run, progress=progress)).to_json()


@task
def remove_topics(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """With *remove*: take the shadow topics away in the only order in which their sources lose nothing."""
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan

    run = current_run(get_current_context())
    if params["other_cluster"]:
        return {}
    stored = StoredReadOnlyPlan.from_json(planned)
    return with_cluster(params, lambda admin: steps.remove_topics(admin, stored, run)).to_json()


@task(trigger_rule="all_done")
def write_report(params: dict[str, Any]) -> str:
    """Report findings, changes and links; fail if a task failed."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.read_only import steps
    from pulsar_fleet.read_only.links import ConfirmedServing
    from pulsar_fleet.read_only.plan import StoredReadOnlyPlan
    from pulsar_fleet.read_only.results import Served
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.planned_run import unplanned_report
    from pulsar_fleet.report.read_only import read_only_report

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    results = {name: context["ti"].xcom_pull(task_ids=name) for name in ("plan_changes", "confirm_links", *STEPS)}
    if results["plan_changes"] is None:
        report = unplanned_report(failed)
    elif params["other_cluster"]:
        report = read_only_copy.report(run, results, read_approval(run), failed)
    else:
        stored = StoredReadOnlyPlan.from_json(results["plan_changes"])
        report = read_only_report(
            stored,
            run.artefacts.read(stored.text).decode(),
            steps.read_findings(run.artefacts, stored),
            {name: Served.from_json(results[name]) for name in STEPS if results[name]},
            ConfirmedServing.from_json(results["confirm_links"]) if results["confirm_links"] else None,
            read_approval(run),
            failed,
        )
    store_report(run, report)
    finish_run(context, failed)
    return report.markdown()


STEPS = ("create_topics", "confirm_brokers", "link_topics", "remove_topics")
"""The tasks that change the cluster, in their order."""
