"""Check, step and report of any procedure; each stores its result with the run (client)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, duration
from pulsar_fleet.ledger.approval import APPROVAL, APPROVED, forget_approval, read_approval
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.resumption import has_written
from pulsar_fleet.preflight.findings import Finding, Planned, blockers
from pulsar_fleet.procedures.procedure import (
    Batches,
    Checked,
    Done,
    Ending,
    NextRun,
    NotYet,
    Procedure,
    Said,
    Session,
    Skipped,
    Step,
    Unmet,
    Wait,
)
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.page import DOCUMENT, store_report
from pulsar_fleet.report.planned_run import planned_report, unplanned_report

log = logging.getLogger(__name__)

_PLANNED, _PLAN, _FINDINGS, _TEXT = "planned.json", "plan.json", "findings.json", "plan.md"
_SAID, _RESULT, _WAITED = "steps/{}.json", "results/{}.json", "waits/{}.json"
_BATCHES, _CHANGES = "batches.json", "changes-begun.json"

Form = TypeVar("Form", bound=Document)


@asynccontextmanager
async def open_session(
    conf: JsonObject,
    run: Run,
    connections: Mapping[str, Sequence[ClusterConnection]],
    **of_step: Any,
) -> AsyncIterator[Session]:
    """A client for each setting that names one cluster, closed at the end.

    :param of_step: more fields of the session.
    """
    async with AsyncExitStack() as stack:
        clusters = {
            name: await stack.enter_async_context(AdminClient(named[0]))
            for name, named in connections.items()
            if named and not isinstance(conf.get(name), list)
        }
        yield Session(conf, run, clusters, {name: tuple(named) for name, named in connections.items()}, **of_step)


async def check(procedure: Procedure, session: Session) -> tuple[JsonObject, Checked]:
    """Check and store what the run would do; returns what `PlanApprovalOperator` reads, and what it was made of."""
    assert procedure.check is not None
    run = session.run
    # That of an earlier attempt is no result of this one, and its approval is none of what is planned now.
    run.artefacts.write_json(run.id, _PLANNED, None)
    forget_approval(run)
    for step in procedure.each:
        _forget(step, session)
    checked = await procedure.check(session)
    plan = run.artefacts.write_json(run.id, _PLAN, checked.plan.to_json()) if checked.plan else None
    if procedure.begun is None:
        run.artefacts.write_json(run.id, _FINDINGS, [finding.to_json() for finding in checked.findings])
    findings = run.artefacts.find(run.id, _FINDINGS)
    stopping = len(blockers(checked.findings))
    number = run.id.rpartition("/")[2]
    planned: JsonObject = {
        "id": number,
        "about": checked.about or f"plan {number}",
        "headline": checked.headline,
        "text": run.artefacts.write(run.id, _TEXT, checked.markdown().encode()).to_json(),
        "plan": plan.to_json() if plan else None,
        "findings": findings.to_json() if findings else None,
        "changes": len(checked.changes),
        "refusal": checked.refusal,
        "blockers": stopping,
        "warnings": len(checked.findings) - stopping + checked.warnings,
    }
    run.artefacts.write_json(run.id, _PLANNED, planned)
    return planned, checked


def is_planned(run: Run) -> bool:
    """Whether this attempt of the run has checked, and not only one of an earlier release."""
    planned = run.stored(_PLANNED)
    return isinstance(planned, dict) and "plan" in planned


def require_planned(procedure: Procedure, run: Run) -> None:
    """Refuse the steps of a run that an earlier release has planned, and of one that nobody has approved.

    :raises PreconditionFailed: there is no plan of this release, or no approval of it.
    """
    if procedure.check and procedure.begun is None and not is_planned(run):
        raise PreconditionFailed(
            f"This run has no plan of this release: it was planned before an upgrade. Clear its task "
            f"{procedure.checks or procedure.opening!r} with those behind it: it plans again and asks again. What the "
            "run has changed until now stays."
        )
    approval = read_approval(run)
    asked = run.requester is not None or run.ledger.facts(run.id, APPROVAL)
    if procedure.begun and approval is None and not asked and procedure.begun(run):
        # Of an earlier release, whose failbacks asked nobody: it must not stop between its steps.
        return
    if procedure.check and (approval is None or approval["answer"] != APPROVED):
        raise PreconditionFailed(
            f"Nobody has approved this run: its task {procedure.approves!r} was marked, or its answer is to an earlier "
            f"plan. Clear {procedure.approves!r}, and answer it."
        )


def resume(run: Run) -> None:
    """Record that a run goes on that had failed or was undone: it reserves its namespaces again."""
    if (recorded := run.ledger.run(run.id)) and recorded.state in ("failed", "undone"):
        run.ledger.resume_run(run.id)


def planned_numbers(run: Run) -> JsonObject:
    """What the check has stored: headline, counts, and where the plan, its text and its findings are."""
    return dict(run.stored(_PLANNED))


def read_planned(run: Run, form: type[Form]) -> Planned[Form]:
    """The plan that the check has made, for the steps and the report.

    :param form: its type.
    """
    return replace(described(run), plan=form.from_json(run.stored(_PLAN)))


def described(run: Run) -> Planned[Any]:
    """What the check has said, without a plan."""
    headline = planned_numbers(run)["headline"]
    return Planned(plan=None, findings=read_findings(run), headline=headline, text=read_changes(run))


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
    # That of an earlier attempt is no result of this one.
    _forget(step, session)
    try:
        said = await step.work(session)
    except Unavailable as error:
        if step.wait is None:
            raise
        # A broker may restart: a wait goes on until its end.
        said = NotYet(str(error))
    if isinstance(said, Done):
        store_result(session, step.name, said.result)
    if isinstance(said, str | Done | Unmet):
        text = said if isinstance(said, str) else said.said
        try:
            session.run.artefacts.write_json(session.run.id, session.stored_at(_SAID.format(step.name)), text)
        except FleetError:
            # What a watch has restored and found a second look would not find again.
            if not isinstance(said, Unmet):
                raise
            log.exception("What %s has found could not be stored: %s", step.name, text)
    return said


def _forget(step: Step, session: Session) -> None:
    for name in (_SAID, _RESULT):
        where = session.stored_at(name.format(step.name))
        if session.run.stored(where) is not None:
            session.run.artefacts.write_json(session.run.id, where, None)


def store_result(session: Session, name: str, result: Document) -> None:
    """Store the result of a step that raises an error all the same; one that returns `Done` needs no call."""
    session.run.artefacts.write_json(session.run.id, session.stored_at(_RESULT.format(name)), result.to_json())


def result_of(run: Run, name: str, form: type[Form]) -> Form | None:
    """The result of a step that has ended; None before.

    :param form: its type.
    """
    stored = run.stored(_RESULT.format(name))
    return None if stored is None else form.from_json(stored)


def results_of(run: Run, names: Sequence[str], form: type[Form]) -> dict[str, Form]:
    """The results of the steps that have ended, in the order of the names."""
    found = {name: result_of(run, name, form) for name in names}
    return {name: result for name, result in found.items() if result is not None}


async def wait_for(step: Step, session: Session) -> Said:
    """Run a step until it does not wait any more, with a line of progress for each look; for the terminal.

    :raises PreconditionFailed: it has waited as long as it may.
    """
    began = time.monotonic()
    while isinstance(said := await run_step(step, session), NotYet):
        wait, seconds = wait_of(step), wait_seconds(step, session.conf)
        if (time.monotonic() - began if wait.again else waited_seconds(step, session)) >= seconds:
            raise PreconditionFailed(missed_text(step, session.run, seconds, said.said))
        session.say(said.said)
        await asyncio.sleep(wait.poll_seconds if said.seconds is None else said.seconds)
    return said


def wait_of(step: Step) -> Wait:
    """For how long a step may wait."""
    if step.wait is None:
        raise TypeError(f"{step.name} returned NotYet and has no Wait.")
    return step.wait


def wait_seconds(step: Step, conf: JsonObject) -> float:
    """For how long a step may wait in a run with these settings."""
    minutes = wait_of(step).minutes
    return float(conf[minutes]) * 60 if minutes else math.inf


def waited_seconds(step: Step, session: Session) -> float:
    """For how long a step has waited, over all attempts; the first call begins to count."""
    return session.run.waited_seconds(session.stored_at(_WAITED.format(step.name)))


def missed_text(step: Step, run: Run, seconds: float, said: str) -> str:
    """Why a step that waited so long has failed, and what to do."""
    wait = wait_of(step)
    missed = f" {wait.missed}" if wait.missed else ""
    return f"After {duration(seconds)}{missed}: {said}. {wait.advice(run)}".rstrip()


def said_by(session: Session, name: str) -> str | None:
    """What a step said when it ended; None before."""
    said = session.run.stored(session.stored_at(_SAID.format(name)))
    return None if said is None else str(said)


@contextmanager
def noting_change(procedure: Procedure, run: Run) -> Iterator[None]:
    """Note that a step begins which changes something.

    Not if a step of a procedure that records what it writes refuses or is stopped before its first write.
    """
    before = may_have_changed(run)
    run.artefacts.write_json(run.id, _CHANGES, True)
    try:
        yield
    except (PreconditionFailed, KeyboardInterrupt):
        if procedure.records and not before and not has_written(run):
            run.artefacts.write_json(run.id, _CHANGES, None)
        raise


def may_have_changed(run: Run) -> bool:
    """Whether this attempt or an earlier one has begun to change something."""
    return bool(run.stored(_CHANGES)) or has_written(run)


def undoable_runs(run: Run) -> list[str]:
    """The ids of this run and of those below it whose writes can be undone, the last one first."""
    recorded = sorted(run.ledger.runs_below(run.id), key=lambda row: row.started_at, reverse=True)
    return [row.run_id for row in recorded if row.state != "undone" and run.ledger.has_intents(row.run_id)]


def undo_commands(run: Run, conf: JsonObject) -> tuple[str, ...]:  # noqa: ARG001
    """The commands that take back what the run has changed, the last change first."""
    return tuple(command_line("undo", one) for one in undoable_runs(run))


def following(procedure: Procedure, run: Run, conf: JsonObject) -> NextRun | Skipped | None:
    """The run that follows one that has succeeded, why none does, or None; none follows what nobody approved."""
    if procedure.follows is None:
        return None
    if not procedure.may_change(conf):
        return Skipped("It was a dry run: no run follows.")
    approval = read_approval(run)
    if procedure.check and (approval is None or approval["answer"] != APPROVED):
        return Skipped("The plan was not approved: no run follows.")
    return procedure.follows.next_run(run, conf)


def has_ended(run: Run, name: str) -> bool:
    """Whether a step of no batch has ended in this attempt."""
    return run.stored(_SAID.format(name)) is not None


def end(procedure: Procedure, run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """What the run says at its end, by the procedure or by what its steps said; stores the report.

    :param failed: step → why it failed.
    """
    if procedure.check and procedure.begun is None and not is_planned(run):
        undo = (procedure.undo or undo_commands)(run, conf)
        report = unplanned_report(failed, undo, changed=may_have_changed(run))
        ending = Ending(report=report, text=report.markdown(), document={"report": report.markdown()}, undo=undo)
    elif procedure.end:
        ending = procedure.end(run, conf, failed)
    else:
        report = _report(procedure, run, failed)
        document, undo = {"report": report.markdown()}, undo_commands(run, conf)
        ending = Ending(report=report, text=report.markdown(), document=document, undo=undo)
    # A report of an earlier try is none of a run that has succeeded since.
    if not ending.has_page and (ending.stored or failed or run.artefacts.find(run.id, DOCUMENT)):
        store_report(run, ending.report)
    return ending


def _report(procedure: Procedure, run: Run, failed: Mapping[str, str]) -> Report:
    said = {step.name: str(run.stored(_SAID.format(step.name))) for step in procedure.each if has_ended(run, step.name)}
    lines = ("| {} | {} |".format(name, (text or "done").replace("|", "\\|")) for name, text in said.items())
    rows = "\n".join(["| step | result |", "| --- | --- |", *lines])
    last = procedure.each[-1].name if procedure.each and len(said) == len(procedure.each) else ""
    planned, approval = described(run), read_approval(run)
    outcome = said.get(last) or planned.headline
    return planned_report(outcome, [rows] if said else [], planned, approval=approval, failed=failed)
