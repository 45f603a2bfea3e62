"""Reconciliation of policies as a procedure: find drift, repair it; see docs/reconcile_policies.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_fleet.procedures.procedure import (
    Application,
    Ended,
    Ending,
    Permission,
    Procedure,
    Question,
    Session,
    Skipped,
    Step,
)
from pulsar_fleet.settings.reconciliation import RECONCILE

if TYPE_CHECKING:
    from collections.abc import Collection

    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.rows import RecordedRun
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions
    from pulsar_fleet.policy_sync.merge.view import Item
    from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
    from pulsar_fleet.policy_sync.reconcile.state import FindDivergent
    from pulsar_fleet.snapshot.model import Snapshot

FOUND, REPAIRED = "drift-summary.json", "repair-summary.json"


def validate(conf: JsonObject) -> None:
    """Refuse an invalid authority, selection or choice, and fewer than two clusters."""
    from pulsar_fleet.cluster.connection import require_two
    from pulsar_fleet.policy_sync.reconcile.request import Request

    Request.of(conf)
    require_two(conf["clusters"])


async def find_drift(session: Session) -> str:
    """Scan all clusters, merge, and plan the writes for each cluster; no cluster is changed.

    Above `compare_with_spark_above` namespaces a Spark job first finds the divergent resources, and only these are
    merged.
    """
    from pulsar_fleet.planning.render import plan_text
    from pulsar_fleet.policy_sync.reconcile import steps
    from pulsar_fleet.policy_sync.reconcile.request import Request
    from pulsar_fleet.report.reconciliation import conflict_lines, deletion_lines

    conf, run = session.conf, session.run
    # Of a step that is done again: what was found and written before is no result of this comparison.
    for name in (FOUND, REPAIRED):
        run.artefacts.write_json(run.id, name, None)
    drift = await steps.find_drift(session.connections["clusters"], Request.of(conf), run, _in_spark(session))
    run.artefacts.write_json(run.id, FOUND, drift.to_json())
    lines = ("\n".join(part) for part in (conflict_lines(drift), deletion_lines(drift), drift.unmeasured))
    plans = steps.read_plans(drift, run)
    return "\n\n".join([drift.headline, *filter(None, lines), *map(plan_text, plans.values())])


def _in_spark(session: Session) -> FindDivergent | None:
    """Finds the divergent resources by the job of the step, where one can be submitted and there is enough to do."""
    from pulsar_fleet.policy_sync.merge import divergence

    threshold, submit = session.conf.get("compare_with_spark_above"), session.spark
    if submit is None or threshold is None:
        return None

    def find_divergent(snapshots: Mapping[str, Snapshot], fleet: Collection[str]) -> frozenset[Item] | None:
        if max(len(snapshot.namespaces) for snapshot in snapshots.values()) <= threshold:
            return None
        request, result = divergence.store_request(session.run, snapshots, fleet)
        submit(request, result)
        return divergence.read_result(session.run, result)

    return find_divergent


def ask_before_repair(session: Session) -> Question | None:
    """Whether to write, and which of the deletions that no id allows yet."""
    from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
    from pulsar_fleet.policy_sync.reconcile.request import Request

    request, drift = Request.of(session.conf), _found(session.run)
    if not _writes(session.conf, drift):
        return None
    waiting = drift.deletions if request.propagate_deletes is PropagateDeletes.APPROVE else {}
    return Question("Write these changes?", permissions(waiting, request.allow))


def permissions(waiting: Mapping[str, PendingDeletions], allowed: Collection[str]) -> tuple[Permission, ...]:
    """What a person has to allow of the deletions of each cluster that no id allows yet."""
    from pulsar_fleet.cluster.text import counted

    return tuple(
        Permission(
            batch.id,
            "\n".join([f"Deleted elsewhere, still on {cluster}:", *batch.resources]),
            f"Delete {counted(len(batch.resources), 'resource')} on {cluster}?",
        )
        for cluster, batch in waiting.items()
        if batch.id not in allowed
    )


async def repair(session: Session) -> str | Skipped:
    """Write only the different fields, and read them back; skipped without drift or if the mode is not `repair`."""
    from pulsar_fleet.policy_sync.reconcile import steps
    from pulsar_fleet.policy_sync.reconcile.request import Request
    from pulsar_fleet.report.reconciliation import headline

    conf, run = session.conf, session.run
    drift = _found(run)
    if not _writes(conf, drift):
        return Skipped("There is nothing to write.")
    run.artefacts.write_json(run.id, REPAIRED, None)
    repaired = await steps.repair(session.connections["clusters"], drift, Request.of(conf), run)
    run.artefacts.write_json(run.id, REPAIRED, repaired.to_json())
    return "\n".join([headline(drift, repaired), *(f"  ! {problem}" for problem in repaired.problems)])


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """Differences and writes; the run fails if a cluster is unreachable, a write failed, or drift must fail it."""
    from pulsar_fleet.cluster.text import command_line
    from pulsar_fleet.policy_sync.reconcile import steps
    from pulsar_fleet.report.document import Outcome
    from pulsar_fleet.report.failure import failed_report, failure_line, failure_to_do
    from pulsar_fleet.report.reconciliation import failure, metrics, reconciliation_report

    if (drift := _found_or_none(run)) is None:
        report = failed_report(failed, "Nothing was compared, nothing has been changed.")
        return Ending(report=report, text="", document={})
    repaired = changed_by(run)
    changed = repaired.changed if repaired else [below.run_id.rpartition("/")[2] for below in _written_below(run)]
    undo = {name: command_line("undo", f"{run.id}/{name}") for name in changed}
    report = reconciliation_report(drift, steps.read_plans(drift, run), repaired)
    if failed:
        to_do = failure_to_do(failed)
        report = replace(report, outcome=Outcome.FAILED, headline=failure_line(failed), to_do=to_do)
    return Ending(
        report=report,
        text="\n".join(
            [run.stored("steps/repair.json") or "", *(f"Undo it on {name} with: {text}" for name, text in undo.items())]
        ),
        document={**drift.to_json(), "repaired": repaired.to_json() if repaired else None},
        ended=_ended(drift, repaired),
        # A run without drift needs no page.
        stored=bool(drift.drift or drift.behind),
        problem=failure(drift, repaired, fail_on_drift=conf.get("fail_on_drift", False)),
        undo=tuple(undo.values()),
        commands=(*(waiting.command for waiting in drift.deletions.values()), *undo.values()),
        metrics=metrics(drift, repaired),
    )


def _written_below(run: Run) -> Sequence[RecordedRun]:
    """The records of the writes on single clusters, also of a repair that did not end."""
    return [below for below in run.ledger.runs_below(run.id) if below.run_id != run.id]


def changed_by(run: Run) -> RepairSummary | None:
    """What the run wrote; None if nothing."""
    from pulsar_fleet.policy_sync.reconcile.results import RepairSummary

    document = run.stored(REPAIRED)
    return RepairSummary.from_json(document) if document else None


def _ended(drift: DriftSummary, repaired: RepairSummary | None) -> Ended:
    from pulsar_fleet.report.reconciliation import remaining

    if repaired is None:
        return Ended.DIFFERENT if drift.drifting else Ended.DONE
    if repaired.failed or repaired.unreached:
        return Ended.PARTLY
    return Ended.DIFFERENT if remaining(drift, repaired) else Ended.DONE


def _writes(conf: JsonObject, drift: DriftSummary) -> bool:
    return conf["mode"] == "repair" and drift.drift is not None


def _found(run: Run) -> DriftSummary:
    drift = _found_or_none(run)
    assert drift is not None, "the step before has stored it"
    return drift


def _found_or_none(run: Run) -> DriftSummary | None:
    from pulsar_fleet.policy_sync.reconcile.results import DriftSummary

    document = run.stored(FOUND)
    return DriftSummary.from_json(document) if document else None


RECONCILIATION = Procedure(
    name="reconcile_policies",
    command="reconcile",
    recorded_as="reconcile",
    summary="Report drift between clusters, and repair it with --mode repair. Exits with 3 if drift remains.",
    clusters={"clusters": "At least two clusters: admin URLs or Airflow connection ids."},
    own_settings=RECONCILE.declared,
    opening="read_request",
    validate=validate,
    idle=RECONCILE.idle_without_clusters("No cluster is reconciled"),
    changes=lambda conf: conf["mode"] == "repair",
    work=(
        Step("find_drift", find_drift, reads=True, shows=True, spark=Application("compare_snapshots.py")),
        Step("repair", repair, asks=ask_before_repair),
    ),
    end=end,
)
