"""Check, step and report of any procedure; each stores its result with the run (client)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.ledger.approval import forget_approval, read_approval
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.preflight.findings import Finding, blockers
from pulsar_fleet.procedures.procedure import (
    Batches,
    Checked,
    Ending,
    NotYet,
    Procedure,
    Said,
    Session,
    Step,
    Unmet,
    Wait,
)
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.page import store_report
from pulsar_fleet.report.planned_run import planned_report, unplanned_report

_PLANNED, _FINDINGS, _TEXT, _RESULT = "planned.json", "findings.json", "plan.md", "steps/{}.json"
_BATCHES, _CHANGES, _WAITED = "batches.json", "changes-begun.json", "waits/{}.json"


@asynccontextmanager
async def open_session(
    conf: JsonObject,
    run: Run,
    connections: Mapping[str, Sequence[ClusterConnection]],
    **of_step: Any,
) -> AsyncIterator[Session]:
    """A client for each setting that names one cluster, closed at the end.

    :param of_step: `spark`, `batch` and `say` of the session.
    """
    async with AsyncExitStack() as stack:
        clusters = {
            name: await stack.enter_async_context(AdminClient(named[0]))
            for name, named in connections.items()
            if named and not isinstance(conf[name], list)
        }
        yield Session(conf, run, clusters, {name: tuple(named) for name, named in connections.items()}, **of_step)


async def check(procedure: Procedure, session: Session) -> tuple[JsonObject, Checked]:
    """Check and store what the run would do; returns what `PlanApprovalOperator` reads, and what it was made of."""
    assert procedure.check is not None
    run = session.run
    # That of an earlier attempt is no result of this one, and its approval is none of what is planned now.
    run.artefacts.write_json(run.id, _PLANNED, None)
    forget_approval(run)
    checked = await procedure.check(session)
    findings = run.artefacts.write_json(run.id, _FINDINGS, [finding.to_json() for finding in checked.findings])
    stopping = len(blockers(checked.findings))
    planned: JsonObject = {
        "id": run.id.rpartition("/")[2],
        "headline": checked.headline,
        "text": run.artefacts.write(run.id, _TEXT, checked.markdown().encode()).to_json(),
        "findings": findings.to_json(),
        "changes": len(checked.changes),
        "refusal": checked.refusal,
        "blockers": stopping,
        "warnings": len(checked.findings) - stopping + checked.warnings,
    }
    run.artefacts.write_json(run.id, _PLANNED, planned)
    return planned, checked


def is_planned(run: Run) -> bool:
    """Whether this attempt of the run has checked: its steps may go on with an earlier plan, its report may not."""
    return isinstance(run.stored(_PLANNED), dict)


def read_findings(run: Run) -> tuple[Finding, ...]:
    """What the check found; empty before it."""
    return tuple(Finding.from_json(document) for document in run.stored(_FINDINGS) or ())


def read_changes(run: Run) -> str:
    """What the run would do, as Markdown; empty before the check."""
    reference = run.artefacts.find(run.id, _TEXT)
    return run.artefacts.read(reference).decode() if reference else ""


async def read_batches(batches: Batches, session: Session) -> list[JsonObject]:
    """Read and store the parts of what the run is about."""
    # Those of an earlier attempt are no result of this one.
    session.run.artefacts.write_json(session.run.id, _BATCHES, None)
    parts = await batches.of(session)
    session.run.artefacts.write_json(session.run.id, _BATCHES, parts)
    return parts


def stored_batches(run: Run) -> list[JsonObject]:
    """The parts that were read; empty before."""
    return list(run.stored(_BATCHES) or ())


async def run_step(step: Step, session: Session) -> Said:
    """Run a step, also one that has run before, and store what it says; of one that is skipped or waits nothing."""
    try:
        said = await step.work(session)
    except Unavailable as error:
        if step.wait is None:
            raise
        # A broker may restart: a wait goes on until its end.
        said = NotYet(str(error))
    if isinstance(said, str | Unmet):
        text = said.said if isinstance(said, Unmet) else said
        session.run.artefacts.write_json(session.run.id, session.stored_at(_RESULT.format(step.name)), text)
    return said


async def wait_for(step: Step, session: Session) -> Said:
    """Run a step until it does not wait any more, with a line of progress for each look; for the terminal.

    :raises PreconditionFailed: it has waited as long as it may.
    """
    while isinstance(said := await run_step(step, session), NotYet):
        wait = wait_of(step)
        seconds = float(session.conf[wait.minutes]) * 60
        if waited_seconds(step, session) >= seconds:
            raise PreconditionFailed(missed_text(step, session.run, seconds, said.said))
        session.say(said.said)
        await asyncio.sleep(wait.poll_seconds)
    return said


def wait_of(step: Step) -> Wait:
    """For how long a step may wait."""
    if step.wait is None:
        raise TypeError(f"{step.name} returned NotYet and has no Wait.")
    return step.wait


def waited_seconds(step: Step, session: Session) -> float:
    """For how long a step has waited, over all attempts; the first call begins to count."""
    return session.run.waited_seconds(session.stored_at(_WAITED.format(step.name)))


def missed_text(step: Step, run: Run, seconds: float, said: str) -> str:
    """Why a step that waited so long has failed, and what to do."""
    return f"After {duration(seconds)}: {said}. {wait_of(step).advice(run)}"


def said_by(session: Session, name: str) -> str | None:
    """What a step said when it ended; None before."""
    said = session.run.stored(session.stored_at(_RESULT.format(name)))
    return None if said is None else str(said)


def note_change(run: Run) -> None:
    """Note that a step begins which changes something."""
    run.artefacts.write_json(run.id, _CHANGES, True)


def may_have_changed(run: Run) -> bool:
    """Whether this attempt or an earlier one has begun a step that changes something."""
    return bool(run.stored(_CHANGES))


def _said(run: Run, name: str) -> str | None:
    said = run.stored(_RESULT.format(name))
    return None if said is None else str(said)


def end(procedure: Procedure, run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """What the run says at its end, by the procedure or by what its steps said; stores the report.

    :param failed: step → why it failed.
    """
    if procedure.end:
        ending = procedure.end(run, conf, failed)
    else:
        report = _report(procedure, run, failed)
        ending = Ending(report=report, text=report.markdown(), document={"report": report.markdown()})
    if ending.stored or failed:
        store_report(run, ending.report)
    return ending


def _report(procedure: Procedure, run: Run, failed: Mapping[str, str]) -> Report:
    if not is_planned(run):
        return unplanned_report(failed)
    planned: JsonObject = run.stored(_PLANNED)
    said = {step.name: text for step in procedure.each if (text := _said(run, step.name)) is not None}
    lines = (f"| {name} | {text or 'done'} |" for name, text in said.items())
    rows = "\n".join(["| step | result |", "| --- | --- |", *lines])
    last = procedure.each[-1].name if procedure.each and len(said) == len(procedure.each) else ""
    return planned_report(
        said.get(last) or planned["headline"],
        [rows] if said else [],
        plan_text=read_changes(run),
        findings=read_findings(run),
        approval=read_approval(run),
        failed=failed,
    )
