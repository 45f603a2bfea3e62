"""The tasks of `onboard_cluster`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)

PROCEDURE = "onboard_cluster"


@task
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse a configuration that cannot be meant: unknown keys, connections, one cluster twice, bad names."""
    from pulsar_fleet.airflow.request import refuse_unknown_settings
    from pulsar_fleet.airflow.runbooks.sides import require_two_clusters
    from pulsar_fleet.cluster.states import Selection

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    selection = Selection.parse(params["selection"])
    clusters = asyncio.run(require_two_clusters(params["source"], params["target"], sorted(selection.namespaces)))
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    return {**clusters, "selection": list(selection.texts())}


@task
def take_snapshot(params: dict[str, Any], request: JsonObject, side: str) -> JsonObject:
    """Read what the cluster holds; no topic is loaded."""
    from pulsar_fleet.airflow.connection import cluster_connection
    from pulsar_fleet.cluster.states import Selection
    from pulsar_fleet.onboarding import steps

    run = current_run(get_current_context())
    selection = Selection.parse(request["selection"])
    snapshot = steps.take_snapshot(
        cluster_connection(params[side]),
        selection,
        run.artefacts,
        run.id,
        name=side,
        must_exist=side == "source" and not selection.everything,
    )
    return asyncio.run(snapshot)


@task
def plan_changes(params: dict[str, Any], source: JsonObject, target: JsonObject) -> JsonObject:
    """Check what cannot work between the two, and plan what the target lacks; nothing is changed."""
    from pulsar_fleet.onboarding import steps

    run = current_run(get_current_context())
    planned = steps.plan_onboarding(source, target, run.artefacts, run.id, subscriptions=params["subscriptions"])
    for finding in steps.read_findings(run.artefacts, planned):
        log.warning("%s", finding.text())
    log.info("%s", planned["headline"])
    return planned


@task
def apply_plan(params: dict[str, Any], planned: JsonObject) -> JsonObject:
    """Carry out the plan on the target, unless a blocker was found; what is in place already is left as it is."""
    from pulsar_fleet.airflow.connection import cluster_connection
    from pulsar_fleet.airflow.progress import log_progress
    from pulsar_fleet.change.findings import blockers, count_line
    from pulsar_fleet.cluster.errors import Conflict, Refused
    from pulsar_fleet.onboarding import steps

    if params["dry_run"]:
        raise AirflowSkipException(f"Dry run: {planned['headline']} Nothing is changed.")
    run = current_run(get_current_context())
    findings = steps.read_findings(run.artefacts, planned)
    if stopping := blockers(findings):
        listed = "\n".join(finding.text() for finding in stopping)
        raise Refused(f"{count_line(findings)}. Nothing has been changed.\n{listed}")
    applied = asyncio.run(
        steps.apply_onboarding(
            cluster_connection(params["source"]),
            cluster_connection(params["target"]),
            planned,
            run.artefacts,
            run.ledger,
            run.id,
            allow=params["allow_changes"],
            progress=log_progress("changes"),
        )
    )
    if not applied["complete"]:
        listed = "\n".join(f"  {problem}" for problem in applied["problems"])
        raise Conflict(f"Not every change is in place on {applied['target']}; the others are.\n{listed}")
    return applied


@task
def verify_equal(params: dict[str, Any], request: JsonObject, source: JsonObject) -> JsonObject:
    """Read the target again and compare it with the source's snapshot; fail unless nothing is left to plan."""
    from pulsar_fleet.airflow.connection import cluster_connection
    from pulsar_fleet.cluster.errors import Conflict
    from pulsar_fleet.cluster.states import Selection
    from pulsar_fleet.onboarding import steps

    run = current_run(get_current_context())
    verified = asyncio.run(
        steps.verify_equal(
            source,
            cluster_connection(params["target"]),
            Selection.parse(request["selection"]),
            run.artefacts,
            run.id,
            subscriptions=params["subscriptions"],
        )
    )
    if not verified["equal"]:
        raise Conflict(f"The target still differs: {verified['headline']} Trigger the DAG again to see and apply it.")
    return verified


@task(trigger_rule="all_done")
def write_report() -> str:
    """Say what was found and made; fail if anything did."""
    from pulsar_fleet.onboarding import steps
    from pulsar_fleet.report.onboarding import onboarding_report

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    source, target, planned, applied, verified = (
        context["ti"].xcom_pull(task_ids=name)
        for name in ("snapshot_source", "snapshot_target", "plan_changes", "apply_plan", "verify_equal")
    )
    if planned is None:
        report = f"# Failed in {', '.join(failed)}: nothing was planned, nothing has been changed\n"
    else:
        plan, findings = steps.read_plan(run.artefacts, planned), steps.read_findings(run.artefacts, planned)
        report = onboarding_report(source, target, plan, findings, applied, verified)
    run.artefacts.write(run.id, "report.md", report.encode())
    finish_run(context, failed)
    return report
