"""The steps of reconciliation: find drift, repair it; each is safe to run again at any point."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from pulsar_fleet.cluster.connection import ClusterConnection, require_two
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.cluster_notes import NoteKind, write_note
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import Fleet, open_fleet
from pulsar_fleet.planning.apply.outcome import PlanResult
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.policy_sync.merge.compare import Comparison, Drift
from pulsar_fleet.policy_sync.merge.deletion_plan import allowed_deletions
from pulsar_fleet.policy_sync.merge.plan import growths
from pulsar_fleet.policy_sync.reconcile.agreement import written
from pulsar_fleet.policy_sync.reconcile.history import History
from pulsar_fleet.policy_sync.reconcile.request import Mode, Request
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairPlan, RepairSummary, repaired_summary
from pulsar_fleet.policy_sync.reconcile.state import FindDivergent, read_state
from pulsar_fleet.policy_sync.recorded_apply import apply_recorded

log = logging.getLogger(__name__)

DRIFT = "drift.json"
PROCEDURE = "reconcile_policies"
PATIENCE_SECONDS = 10.0


async def find_drift(
    connections: Sequence[ClusterConnection], request: Request, run: Run, find_divergent: FindDivergent | None = None
) -> DriftSummary:
    """Scan all clusters, merge, and plan the writes for each cluster; no cluster is changed.

    Observations, merge bases and conflicts are saved, except by a dry run, so that a later crash loses nothing. A
    second call keeps the times of the first observations.

    :param find_divergent: compares the clusters in a job, so that only divergent resources are merged here; it may
        take long.
    :raises PermissionDenied: a cluster denies access; nothing was saved.
    :raises Unavailable: fewer than two clusters answer, or the authority does not.
    """
    began, redactor = time.monotonic(), open_redactor()
    async with _open_fleet(connections) as fleet:
        state = await read_state(fleet, len(connections), request, run, redactor, find_divergent)
    comparison, history = state.comparison, state.history
    if request.mode is not Mode.DRY_RUN:
        writing = comparison.drift() if request.mode is Mode.REPAIR else ()
        history.save_observations(state.views, state.observed, writing)
        history.record_conflicts(run.id, comparison.compared)
        every = request.mode is Mode.REPORT
        final = [resource for resource in comparison.compared if every or not resource.has_drift]
        history.conclude(final, {})
    summary = replace(
        state.summary(fleet),
        seconds=round(time.monotonic() - began, 2),
        divergent=None if state.divergent is None else len(state.divergent),
        plans={cluster: _store_plan(run, plan) for cluster, plan in state.plans.items() if plan.changes},
        drift=_store_drift(run, comparison),
    )
    log.info("%s It took %s s.", summary.headline, summary.seconds)
    if request.mode is not Mode.DRY_RUN:
        _note_drift(run, summary, summary.plans)
    return summary


async def repair(
    connections: Sequence[ClusterConnection], summary: DriftSummary, request: Request, run: Run
) -> RepairSummary:
    """Apply the plans of `find_drift`, all clusters in parallel; within a namespace one setter after the other.

    A value that changed in the meantime is left to the next run. A second call writes only values that are not in
    place. The changes on a cluster can be undone by the run id `<run>/<cluster>`. Then all clusters are read again, so
    that the result says what still differs.

    :param summary: the result of `find_drift`; without drift nothing is written.
    """
    redactor = open_redactor()
    compared = Drift.from_json(run.artefacts.read_json(summary.drift)).compared if summary.drift else ()
    plans = read_plans(summary, run)
    async with _open_fleet(connections) as fleet:
        history = History.of(run.ledger, fleet, len(connections))
        reached = {cluster: plan for cluster, plan in plans.items() if cluster in fleet.clusters}
        applied = await asyncio.gather(*(_apply(fleet, plan, request, run, redactor) for plan in reached.values()))
        history.conclude(compared, {result.target: written(result) for result in applied})
        unreached = [cluster for cluster in plans if cluster not in reached]
        clusters = dict(fleet.clusters)
        after = await _state_after(fleet, len(connections), replace(request, choose={}), run, redactor)
    calls = {name: admin.calls for name, admin in clusters.items()}
    repaired = repaired_summary(applied, unreached, calls, after)
    changes = [result.to_json() for result in applied]
    run.artefacts.write_json(run.id, "repaired.json", {**repaired.to_json(), "changes": changes})
    if after:
        _note_drift(run, after, {})
    return repaired


def _note_drift(run: Run, summary: DriftSummary, plans: Mapping[str, RepairPlan]) -> None:
    """Note for the Fleet page what differs; after a repair nothing is planned."""
    for cluster in summary.clusters:
        changes = plans[cluster].changes if cluster in plans else 0
        write_note(run.artefacts, cluster, NoteKind.DRIFT, run.id, {"changes": changes, "fields": summary.fields})
    for cluster, scan in summary.behind.items():
        write_note(run.artefacts, cluster, NoteKind.DRIFT, run.id, {"unreachable": f"last seen {scan.since}"})


async def _state_after(fleet: Fleet, size: int, request: Request, run: Run, redactor: Redactor) -> DriftSummary | None:
    """The fleet after the writes; nothing is recorded. None if it cannot be read: what was written stays written."""
    try:
        return (await read_state(fleet, size, request, run, redactor)).summary(fleet)
    except FleetError as error:
        log.warning("the clusters could not be compared again after the repair: %s", error)
        return None


def _open_fleet(connections: Sequence[ClusterConnection]) -> AbstractAsyncContextManager[Fleet]:
    require_two([connection.name for connection in connections])
    return open_fleet(connections, PATIENCE_SECONDS)


async def _apply(fleet: Fleet, plan: Plan, request: Request, run: Run, redactor: Redactor) -> PlanResult:
    run_id, target, sources = f"{run.id}/{plan.target}", fleet.clusters[plan.target], list(fleet.clusters.values())
    allow = request.allow | growths(plan) | allowed_deletions(plan, request.allow)
    return await apply_recorded(
        plan, target, sources, run.ledger, run_id, PROCEDURE, redactor=redactor, allow=allow, behind=fleet.behind
    )


def read_plans(summary: DriftSummary, run: Run) -> dict[str, Plan]:
    """The plans that `find_drift` stored, by cluster."""
    return {cluster: Plan.from_json(run.artefacts.read_json(stored.plan)) for cluster, stored in summary.plans.items()}


def _store_plan(run: Run, plan: Plan) -> RepairPlan:
    return RepairPlan(
        plan=run.artefacts.write_json(run.id, f"plan-{plan.target}.json", plan.to_json()),
        changes=len(plan.changes),
        needs_permission=len({change.id for change in plan.needing_permission()} - growths(plan)),
    )


def _store_drift(run: Run, comparison: Comparison) -> Reference | None:
    drift = comparison.drift()
    return run.artefacts.write_json(run.id, DRIFT, Drift(drift).to_json()) if drift else None
