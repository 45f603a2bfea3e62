"""The tasks of `onboard_cluster`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context

from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)


@task(multiple_outputs=True)
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse an invalid configuration: unknown keys, connections or names, one cluster twice."""
    from pulsar_fleet.airflow.conf import require_two_clusters
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.onboarding.steps import PROCEDURE
    from pulsar_fleet.preflight.waivers import parse_waivers
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    parse_waivers(params["waivers"])
    selection = Selection.parse(params["selection"])
    clusters = asyncio.run(require_two_clusters(params["source"], params["target"], sorted(selection.namespaces)))
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    return {**clusters, "selection": list(selection.texts())}


@task
def take_snapshot(params: dict[str, Any], request: JsonObject, side: str) -> JsonObject:
    """Read the resources of the cluster; topics are loaded only for the properties of their subscriptions."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.selection import Selection
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
        subscriptions=params["subscriptions"],
    )
    return asyncio.run(snapshot).to_json()


@task
def plan_changes(params: dict[str, Any], source: JsonObject, target: JsonObject) -> JsonObject:
    """Find incompatibilities, and plan what the target lacks; nothing is changed."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.onboarding import steps
    from pulsar_fleet.onboarding.results import TakenSnapshot
    from pulsar_fleet.preflight.waivers import parse_waivers

    run = current_run(get_current_context())
    ours, theirs = TakenSnapshot.from_json(source), TakenSnapshot.from_json(target)
    answers = asyncio.run(steps.probe_target_schemas(cluster_connection(params["target"]), ours, theirs, run.artefacts))
    planned = steps.plan_onboarding(
        ours,
        theirs,
        run.artefacts,
        run.id,
        subscriptions=params["subscriptions"],
        lag_seconds=params["expected_lag_hours"] * 3600,
        answers=answers,
        waivers=parse_waivers(params["waivers"]),
    )
    for finding in steps.read_findings(run.artefacts, planned):
        log.warning("%s", finding.text())
    log.info("%s", planned.headline)
    return planned.to_json()


@task(max_active_tis_per_dagrun=1)
def apply_plan(params: dict[str, Any], planned: JsonObject, batch: int) -> JsonObject:
    """Apply one batch of the approved plan; changes that are already in place are skipped."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.airflow.run import log_progress
    from pulsar_fleet.cluster.errors import Conflict
    from pulsar_fleet.ledger.artefacts import Reference
    from pulsar_fleet.onboarding import steps

    run = current_run(get_current_context())
    applied = asyncio.run(
        steps.apply_onboarding(
            cluster_connection(params["source"]),
            cluster_connection(params["target"]),
            Reference.from_json(planned["plan"]),
            run.artefacts,
            run.ledger,
            run.id,
            batch=batch,
            allow=params["allow_changes"],
            progress=log_progress("changes"),
        )
    )
    if not applied.complete:
        listed = "\n".join(f"  {problem}" for problem in applied.problems)
        raise Conflict(f"Some changes are not in place on {applied.target}; all others are.\n{listed}")
    return applied.to_json()


@task(trigger_rule="all_done")
def write_report() -> str:
    """Report findings and changes; fail if a task failed."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.onboarding import steps
    from pulsar_fleet.onboarding.results import StoredPlan, TakenSnapshot
    from pulsar_fleet.report.onboard import onboarding_report
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.planned_run import unplanned_report
    from pulsar_fleet.verification.snapshots.compare import EqualityResult

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    source, target, planned, verified = (
        context["ti"].xcom_pull(task_ids=name)
        for name in ("snapshot_source", "snapshot_target", "plan_changes", "verify_equal")
    )
    if planned is None:
        report = unplanned_report(failed)
    else:
        stored, ours, theirs = StoredPlan.from_json(planned), *map(TakenSnapshot.from_json, (source, target))
        plan, findings = steps.read_plan(run.artefacts, stored), steps.read_findings(run.artefacts, stored)
        applied, approval = steps.read_applied(run.artefacts, run.id, stored), read_approval(run)
        equality = EqualityResult.from_json(verified) if verified else None
        report = onboarding_report(ours, theirs, plan, findings, applied, equality, approval)
    store_report(run, report)
    finish_run(context, failed)
    return report.markdown()
