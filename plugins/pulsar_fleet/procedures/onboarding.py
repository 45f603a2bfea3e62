"""The copy of everything but messages to another cluster as a procedure; see docs/onboard_cluster.md."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.procedures.procedure import Application, Checked, Done, Ending, Procedure, Session, Step
from pulsar_fleet.settings.onboard import SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.onboarding.results import TakenSnapshot
    from pulsar_fleet.planning.comparison import Comparison
    from pulsar_fleet.planning.plan import Plan
    from pulsar_fleet.preflight.findings import Planned
    from pulsar_fleet.verification.snapshots.compare import CompareRequest, EqualityResult

SPARK_FROM_ROWS = 2_000_000
"""Rows of the source. Fewer rows are compared in the task before Spark has started, unless many rows differ."""
_TAKEN = "taken-{}.json"
_ALL_REFUSED = (
    "Every change of this plan needs permission: allow each by its id, with --allow or the setting 'allow_changes'. "
    "Nothing has been changed."
)


def validate(conf: JsonObject) -> None:
    """Refuse an invalid selection and invalid waivers."""
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.preflight.waivers import parse_waivers

    parse_waivers(conf["waivers"])
    Selection.parse(conf["selection"])


async def require(session: Session) -> None:
    """Refuse one cluster twice, and namespaces that the source lacks."""
    from pulsar_fleet.cluster.connection import refuse_same_cluster
    from pulsar_fleet.snapshot.cluster_reader import require_namespaces

    source, target = session.clusters["source"], session.clusters["target"]
    names = await asyncio.gather(source.cluster_name(), target.cluster_name())
    refuse_same_cluster(session.conf["source"], session.conf["target"], names)
    await require_namespaces(source, sorted(_selection(session).namespaces))


async def snapshot_source(session: Session) -> str:
    """Read the resources of the source; topics are loaded only for the properties of their subscriptions."""
    return await _snapshot(session, "source")


async def snapshot_target(session: Session) -> str:
    """Read the resources of the target; topics are loaded only for the properties of their subscriptions."""
    return await _snapshot(session, "target")


async def _snapshot(session: Session, side: str) -> str:
    from pulsar_fleet.onboarding import steps

    (cluster,), selection, run = session.connections[side], _selection(session), session.run
    taken = await steps.take_snapshot(
        cluster,
        selection,
        run.artefacts,
        run.id,
        name=side,
        must_exist=side == "source" and not selection.everything,
        subscriptions=session.conf["subscriptions"],
    )
    run.artefacts.write_json(run.id, _TAKEN.format(side), taken.to_json())
    return f"{counted(taken.counts['namespaces'], 'namespace')} and {counted(taken.counts['topics'], 'topic')}."


async def plan_changes(session: Session) -> Checked:
    """Find incompatibilities, and plan what the target lacks; nothing is changed."""
    from pulsar_fleet.onboarding import steps
    from pulsar_fleet.planning.render import plan_text, question
    from pulsar_fleet.preflight.waivers import parse_waivers

    run, conf, (target,) = session.run, session.conf, session.connections["target"]
    ours, theirs = _taken(run, "source"), _taken(run, "target")
    planned = steps.plan_onboarding(
        ours,
        theirs,
        run.artefacts,
        subscriptions=conf["subscriptions"],
        lag_seconds=conf["expected_lag_hours"] * 3600,
        answers=await steps.probe_target_schemas(target, ours, theirs, run.artefacts),
        waivers=parse_waivers(conf["waivers"]),
    )
    plan, asked = planned.plan, question(planned.plan, conf["allow_changes"])
    steps.forget_applied(run.artefacts, run.id, plan)
    return Checked(
        headline=planned.headline,
        changes=tuple(change.label for change in plan.changes),
        findings=planned.findings,
        plan=plan,
        text=planned.text,
        plain="\n\n".join([plan_text(plan), *(["Dry run: nothing has been changed."] if conf["dry_run"] else [])]),
        question=asked,
        refusal=_ALL_REFUSED if plan.changes and not asked else "",
    )


async def apply_plan(session: Session) -> str:
    """Apply the approved plan, some namespaces at a time; changes that are already in place are skipped."""
    from pulsar_fleet.cluster.errors import Conflict, FleetError, Unavailable
    from pulsar_fleet.onboarding import steps
    from pulsar_fleet.report.progress import progress_lines

    run, plan = session.run, _planned(session.run).plan
    (source,), (target,) = (session.connections[side] for side in ("source", "target"))
    progress, failures, problems = progress_lines("changes", session.say), list[FleetError](), list[str]()
    for batch in steps.batches_of(plan):
        try:
            applied = await steps.apply_onboarding(
                source,
                target,
                plan,
                run.artefacts,
                run.ledger,
                run.id,
                batch=batch,
                allow=session.conf["allow_changes"],
                progress=progress,
            )
        except Unavailable:
            raise
        except FleetError as error:
            # The namespaces of the other batches do not depend on it.
            failures.append(error)
        else:
            problems += applied.problems
    if failures:
        raise failures[0]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise Conflict(f"Some changes are not in place on {plan.target}; all others are.\n{listed}")
    return f"All of the plan is in place on {plan.target}."


async def verify_equal(session: Session) -> Done:
    """Read the target again, compare it with the source's snapshot, and fail if changes remain to plan."""
    from pulsar_fleet.cluster.errors import Conflict
    from pulsar_fleet.procedures.runner import store_result
    from pulsar_fleet.verification.snapshots.compare import EqualityResult, read_back

    run, (target,) = session.run, session.connections["target"]
    request = await read_back(
        _taken(run, "source").reference,
        target,
        _selection(session),
        run.artefacts,
        run.id,
        subscriptions=session.conf["subscriptions"],
    )
    comparison = await asyncio.to_thread(_compare, session, request)
    result = EqualityResult.of(request, comparison)
    if not comparison.equal:
        store_result(session, "verify_equal", result)
        raise Conflict(f"The target still differs: start it again to see and apply the changes.\n{result.text}")
    return Done(result.text, result)


def _compare(session: Session, request: CompareRequest) -> Comparison:
    from pulsar_fleet.verification.snapshots.compare import (
        compare_in_process,
        compare_snapshots,
        read_result,
        store_request,
    )

    mode, rows = session.conf.get("compare_in_spark"), sum(_taken(session.run, "source").counts.values())
    if session.spark is None or mode == "never" or (mode == "auto" and rows < SPARK_FROM_ROWS):
        session.say(f"{rows:,} rows are compared in this process, without Spark")
        return compare_snapshots(request, compare_in_process)
    uris = store_request(session.run, request)
    session.spark(*uris)
    return read_result(uris[1])


def verified(run: Run) -> EqualityResult | None:
    """What the last step found for the plan of this run; None before it."""
    from pulsar_fleet.procedures.runner import result_of
    from pulsar_fleet.verification.snapshots.compare import EqualityResult

    return result_of(run, "verify_equal", EqualityResult)


def source_of(run: Run) -> TakenSnapshot:
    """The source's snapshot."""
    return _taken(run, "source")


def target_of(run: Run) -> str:
    """The target's own name."""
    return _planned(run).plan.target


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """Findings, changes and the proof."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.onboarding import steps
    from pulsar_fleet.procedures.runner import undo_commands
    from pulsar_fleet.report.onboard import onboarding_report

    planned = _planned(run)
    report = onboarding_report(
        _taken(run, "source"),
        _taken(run, "target"),
        planned.plan,
        planned.findings,
        steps.read_applied(run.artefacts, run.id, planned.plan),
        verified(run),
        read_approval(run),
    )
    text = report.markdown()
    document: JsonObject = {"failed": list(failed), "report": text}
    return Ending(report=report, text=text, document=document, undo=undo_commands(run, conf))


def _selection(session: Session) -> Selection:
    from pulsar_fleet.cluster.selection import Selection

    return Selection.parse(session.conf["selection"])


def _taken(run: Run, side: str) -> TakenSnapshot:
    from pulsar_fleet.onboarding.results import TakenSnapshot

    return TakenSnapshot.from_json(run.stored(_TAKEN.format(side)))


def _planned(run: Run) -> Planned[Plan]:
    from pulsar_fleet.planning.plan import Plan
    from pulsar_fleet.procedures.runner import read_planned

    return read_planned(run, Plan)


ONBOARDING = Procedure(
    name="onboard_cluster",
    command="onboard",
    summary="Copy everything but messages to another cluster, and verify it.",
    clusters={
        "source": "Cluster to copy, which is only read: admin URL or Airflow connection id.",
        "target": "Cluster that receives the copy: admin URL or Airflow connection id.",
    },
    own_settings=SETTINGS,
    opening="read_request",
    checks="plan_changes",
    validate=validate,
    records=True,
    require=require,
    looks=(
        Step("snapshot_source", snapshot_source, reads=True),
        Step("snapshot_target", snapshot_target, reads=True, beside=True),
    ),
    check=plan_changes,
    work=(
        Step("apply_plan", apply_plan),
        Step("verify_equal", verify_equal, reads=True, spark=Application("compare_snapshots.py")),
    ),
    end=end,
)
