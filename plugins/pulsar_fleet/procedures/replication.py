"""Replication between clusters as a procedure; see docs/replicate_namespaces.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.procedures.procedure import Checked, Done, Ending, NotYet, Procedure, Session, Skipped, Step, Wait
from pulsar_fleet.settings.replication import SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.planning.apply.outcome import StepResult
    from pulsar_fleet.preflight.findings import Planned
    from pulsar_fleet.replication.clusters import Clusters
    from pulsar_fleet.replication.setup.plan import ReplicationPlan

GROUPS = ("clusters", "receive_only", "leaving")
STAGES = ("apply_contents", "start_links", "end_links")
"""The steps that change clusters, in their order."""
_UNDO = ("ends", "starts", "permissions", "contents")
"""The runs below that of a procedure, in the order in which they are undone."""


@asynccontextmanager
async def open_groups(session: Session) -> AsyncIterator[Clusters]:
    """All clusters of the settings `GROUPS`, by their own names."""
    from pulsar_fleet.replication.clusters import open_clusters

    async with open_clusters(*(session.connections[group] for group in GROUPS)) as clusters:
        yield clusters


def validate(conf: JsonObject) -> None:
    """Refuse invalid names, a cluster that is named twice, nothing to replicate."""
    from pulsar_fleet.replication.request import Request

    Request.of(conf)


async def plan_changes(session: Session) -> Checked:
    """Check every link in both directions, and plan what each cluster lacks; nothing is changed."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    async with open_groups(session) as clusters:
        planned = await steps.plan(clusters, Request.of(session.conf))
    return checked(session, planned)


def checked(session: Session, planned: Planned[ReplicationPlan], lines: tuple[str, ...] = ()) -> Checked:
    """What the plan does, for the runner.

    :param lines: what the person who approves reads before it.
    """
    from pulsar_fleet.planning.render import plan_text
    from pulsar_fleet.replication.setup.plan import call_lines

    plan, text = planned.plan, planned.text
    plain = ["\n".join(lines), *map(plan_text, plan.plans)]
    if session.conf["dry_run"]:
        plain.append("\n".join(["The calls, in their order:", *(f"  {call}" for call in call_lines(plan))]))
    return Checked(
        headline=planned.headline,
        changes=tuple(change.label for part in plan.plans for change in part.changes),
        findings=planned.findings,
        plan=plan,
        text="\n".join([*(f"* {line}" for line in lines), "", text]) if lines else text,
        plain="\n\n".join(filter(None, plain)),
    )


async def apply_contents(session: Session) -> Done:
    """Create cluster data, tenants, namespaces, topics and schemas; nothing is replicated yet."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    async with open_groups(session) as clusters:
        request = Request.of(session.conf)
        return done(await steps.apply_contents(clusters, planned_in(session.run), request, session.run))


async def start_links(session: Session) -> Done:
    """Store the cluster lists, each with the name of the cluster that stores it."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    async with open_groups(session) as clusters:
        request = Request.of(session.conf)
        return done(await steps.start_links(clusters, planned_in(session.run), request, session.run))


async def confirm_links(session: Session) -> Done:
    """Load every topic; fail if a link is not connected, or is connected and sends nothing."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.report.progress import progress_lines
    from pulsar_fleet.report.replication import outcome_line

    planned, progress = planned_in(session.run), progress_lines("links", session.say)
    async with open_groups(session) as clusters:
        links = await steps.confirm(clusters, planned, progress=progress)
    return Done(outcome_line(planned.plan, links), links)


async def wait_sent(session: Session) -> str | NotYet | Skipped:
    """Wait until links that end have sent what they have; skipped if none ends. The look loads their topics."""
    from pulsar_fleet.replication import steps

    # It may run in the loop of a triggerer, which a read of the store would hold up.
    planned = await asyncio.to_thread(planned_in, session.run)
    if not planned.plan.ends:
        return Skipped("No link ends.")
    async with open_groups(session) as clusters:
        waiting = await steps.backlog_of_ending_links(clusters, planned)
    return NotYet(waiting) if waiting else "Everything is sent."


def _unsent(run: Run) -> str:  # noqa: ARG001
    return "Nothing has been ended: correct the cause, which `pulsar-fleet doctor` names, and start a new run."


async def end_links(session: Session) -> Done:
    """Store the lists that end links, then free tenants and cluster data that nothing uses; skipped if none ends."""
    from pulsar_fleet.replication import steps

    async with open_groups(session) as clusters:
        return done(await steps.end_links(clusters, planned_in(session.run), session.run))


def planned_in(run: Run) -> Planned[ReplicationPlan]:
    """The plan of the run."""
    from pulsar_fleet.procedures.runner import read_planned
    from pulsar_fleet.replication.setup.plan import ReplicationPlan

    return read_planned(run, ReplicationPlan)


def done(result: StepResult) -> Done:
    """What a step did."""
    kept = "".join(f"\nkept: {line}" for line in result.kept)
    return Done(f"{counted(result.changes, 'change')} in place, {counted(result.calls, 'call')}.{kept}", result)


def end(run: Run, conf: JsonObject, failed: Mapping[str, str], names: Mapping[str, str] | None = None) -> Ending:
    """Findings, changes, links, and how to undo them.

    :param names: step → its name here, of another procedure.
    """
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.planning.apply.outcome import StepResult
    from pulsar_fleet.procedures.runner import may_have_changed, planned_numbers, result_of, results_of
    from pulsar_fleet.replication.setup.links import ConfirmedLinks
    from pulsar_fleet.replication.setup.plan import call_lines
    from pulsar_fleet.report.replication import outcome_line, replication_report

    planned, commands = planned_in(run), undo(run, conf)
    plan, links = planned.plan, result_of(run, "confirm_links", ConfirmedLinks)
    named = results_of(run, [*(names or STAGES)], StepResult)
    stages = {(names or {}).get(name, name): stage for name, stage in named.items()}
    figures = {"clusters": plan.topology.clusters, "namespaces": len(plan.namespaces), "calls": plan.calls}
    document: JsonObject = {
        "planned": {**planned_numbers(run), **figures, "ends": plan.ends},
        "findings": [finding.to_json() for finding in planned.findings],
        **{name: stage.to_json() for name, stage in stages.items()},
        **({"calls": call_lines(plan)} if conf["dry_run"] else {}),
        **({"links": links.to_json()} if links else {}),
        **({"undo": commands} if links or commands else {}),
    }
    lines = [outcome_line(plan, links)] if links else []
    lines += [f"  kept: {line}" for stage in stages.values() for line in stage.kept]
    lines += ["To undo it, in this order:", *(f"  {line}" for line in commands)] if commands else []
    changed = may_have_changed(run)
    report = replication_report(planned, named, links, commands, read_approval(run), failed, changed=changed)
    text = "\n".join(lines) if links else ""
    return Ending(report=report, text=text, document=document, commands=commands if links else (), undo=commands)


def undo(run: Run, conf: JsonObject) -> tuple[str, ...]:  # noqa: ARG001
    """The commands that take back what the run has changed: lists first, since a replicator recreates a topic."""
    from pulsar_fleet.procedures.runner import undoable_runs

    by_stage = sorted(
        undoable_runs(run),
        key=lambda below: next((at for at, stage in enumerate(_UNDO) if below.startswith(f"{run.id}/{stage}")), 0),
    )
    return tuple(command_line("undo", below) for below in by_stage)


REPLICATION = Procedure(
    name="replicate_namespaces",
    command="replicate",
    same_credentials=True,
    records=True,
    undo=undo,
    summary="Replicate namespaces between clusters, add a cluster, or take one out.",
    clusters={
        "clusters": "The clusters that replicate to each other: admin URLs or Airflow connections.",
        "receive_only": "Clusters that only receive.",
        "leaving": "Clusters that leave.",
    },
    own_settings=SETTINGS,
    opening="read_request",
    checks="plan_changes",
    validate=validate,
    check=plan_changes,
    work=(
        Step("apply_contents", apply_contents),
        Step("start_links", start_links),
        Step("confirm_links", confirm_links, reads=True),
        Step("wait_sent", wait_sent, reads=True, wait=Wait("drain_minutes", _unsent, look=wait_sent)),
        Step("end_links", end_links),
    ),
    end=end,
)
