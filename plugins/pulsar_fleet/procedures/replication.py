"""Replication between clusters as a procedure; see docs/replicate_namespaces.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pulsar_fleet.procedures.procedure import Checked, Ending, NotYet, Procedure, Session, Skipped, Step, Wait
from pulsar_fleet.settings.replication import SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.replication.clusters import Clusters
    from pulsar_fleet.replication.setup.apply import AppliedStage
    from pulsar_fleet.replication.setup.links import ConfirmedLinks
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

GROUPS = ("clusters", "receive_only", "leaving")
STAGES = ("apply_contents", "start_links", "end_links")
"""The steps that change clusters, in their order."""
_PLANNED, _STAGE, _LINKS = "replication.json", "stages/{}.json", "links.json"


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
        planned = await steps.plan(clusters, Request.of(session.conf), session.run)
    return checked(session, planned)


def checked(session: Session, planned: StoredReplicationPlan, lines: tuple[str, ...] = ()) -> Checked:
    """Store the plan for the steps, and say what it does.

    :param lines: what the person who approves reads before it.
    """
    from pulsar_fleet.planning.render import plan_text
    from pulsar_fleet.replication.stored_plan import call_lines, read_findings, read_plan

    run = session.run
    run.artefacts.write_json(run.id, _PLANNED, planned.to_json())
    stored, text = read_plan(run.artefacts, planned), run.artefacts.read(planned.text).decode()
    plain = ["\n".join(lines), *map(plan_text, stored.plans)]
    if session.conf["dry_run"]:
        plain.append("\n".join(["The calls, in their order:", *(f"  {call}" for call in call_lines(stored))]))
    return Checked(
        headline=planned.headline,
        changes=tuple(change.label for plan in stored.plans for change in plan.changes),
        findings=read_findings(run.artefacts, planned),
        text="\n".join([*(f"* {line}" for line in lines), "", text]) if lines else text,
        plain="\n\n".join(filter(None, plain)),
    )


async def apply_contents(session: Session) -> str:
    """Create cluster data, tenants, namespaces, topics and schemas; nothing is replicated yet."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    async with open_groups(session) as clusters:
        stage = await steps.apply_contents(clusters, planned_in(session.run), Request.of(session.conf), session.run)
    return store_stage(session.run, "apply_contents", stage)


async def start_links(session: Session) -> str:
    """Store the cluster lists, each with the name of the cluster that stores it."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.request import Request

    async with open_groups(session) as clusters:
        stage = await steps.start_links(clusters, planned_in(session.run), Request.of(session.conf), session.run)
    return store_stage(session.run, "start_links", stage)


async def confirm_links(session: Session) -> str:
    """Load every topic; fail if a link is not connected, or is connected and sends nothing."""
    from pulsar_fleet.replication import steps
    from pulsar_fleet.report.progress import progress_lines
    from pulsar_fleet.report.replication.setup import outcome_line

    planned, progress = planned_in(session.run), progress_lines("links", session.say)
    async with open_groups(session) as clusters:
        return outcome_line(planned, await steps.confirm(clusters, planned, session.run, progress=progress))


async def wait_sent(session: Session) -> str | NotYet | Skipped:
    """Wait until links that end have sent what they have; skipped if none ends. The look loads their topics."""
    from pulsar_fleet.replication import steps

    planned = planned_in(session.run)
    if not planned.ends:
        return Skipped("No link ends.")
    async with open_groups(session) as clusters:
        waiting = await steps.backlog_of_ending_links(clusters, planned, session.run)
    return NotYet(waiting) if waiting else "Everything is sent."


def _unsent(run: Run) -> str:  # noqa: ARG001
    return "Nothing has been ended: correct the cause, which `pulsar-fleet doctor` names, and start a new run."


async def end_links(session: Session) -> str:
    """Store the lists that end links, then free tenants and cluster data that nothing uses; skipped if none ends."""
    from pulsar_fleet.replication import steps

    async with open_groups(session) as clusters:
        stage = await steps.end_links(clusters, planned_in(session.run), session.run)
    return store_stage(session.run, "end_links", stage)


def planned_in(run: Run) -> StoredReplicationPlan:
    """The plan of the run."""
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    return StoredReplicationPlan.from_json(run.stored(_PLANNED))


def store_stage(run: Run, name: str, stage: AppliedStage) -> str:
    """Store what a step did, for the report."""
    from pulsar_fleet.cluster.text import counted

    run.artefacts.write_json(run.id, _STAGE.format(name), stage.to_json())
    kept = "".join(f"\nkept: {line}" for line in stage.kept)
    return f"{counted(stage.changes, 'change')} in place, {counted(stage.calls, 'call')}.{kept}"


def stages_in(run: Run) -> dict[str, AppliedStage]:
    """What the steps did, by name in their order."""
    from pulsar_fleet.replication.setup.apply import AppliedStage

    stored = {name: run.stored(_STAGE.format(name)) for name in STAGES}
    return {name: AppliedStage.from_json(document) for name, document in stored.items() if document}


def end(run: Run, conf: JsonObject, failed: Mapping[str, str], names: Mapping[str, str] | None = None) -> Ending:
    """Findings, changes, links, and how to undo them.

    :param names: of the steps in another procedure.
    """
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.procedures.runner import is_planned, read_changes, read_findings
    from pulsar_fleet.replication.stored_plan import call_lines, read_plan
    from pulsar_fleet.report.planned_run import unplanned_report
    from pulsar_fleet.report.replication.setup import outcome_line, replication_report, undo_lines

    if not is_planned(run):
        return Ending(report=unplanned_report(failed), text="", document={})
    planned, stages, links, findings = planned_in(run), stages_in(run), _confirmed(run, failed), read_findings(run)
    named = {(names or {}).get(name, name): stage for name, stage in stages.items()}
    report = replication_report(planned, read_changes(run), findings, named, links, read_approval(run), failed)
    document: JsonObject = {
        "planned": planned.to_json(),
        "findings": [finding.to_json() for finding in findings],
        **{name: stage.to_json() for name, stage in stages.items()},
    }
    if conf["dry_run"]:
        document["calls"] = call_lines(read_plan(run.artefacts, planned))
    if links is None:
        return Ending(report=report, text="", document=document)
    commands = undo_lines(stages)
    lines = [outcome_line(planned, links)]
    lines += [f"  kept: {line}" for stage in stages.values() for line in stage.kept]
    lines += ["To undo it, in this order:", *(f"  {line}" for line in commands)] if commands else []
    return Ending(
        report=report,
        text="\n".join(lines),
        document={**document, "links": links.to_json(), "undo": commands},
        commands=tuple(commands),
    )


def _confirmed(run: Run, failed: Mapping[str, str]) -> ConfirmedLinks | None:
    from pulsar_fleet.replication.setup.links import ConfirmedLinks

    stored = run.stored(_LINKS)
    return ConfirmedLinks.from_json(stored) if stored and "confirm_links" not in failed else None


REPLICATION = Procedure(
    name="replicate_namespaces",
    command="replicate",
    same_credentials=True,
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
        Step("wait_sent", wait_sent, reads=True, wait=Wait("drain_minutes", _unsent, in_triggerer=True)),
        Step("end_links", end_links),
    ),
    end=end,
)
