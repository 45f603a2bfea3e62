"""Execute a plan on the command line: show it, ask, apply, print the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.runs import begin_run
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cli.text import applied_text, nothing_text
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.onboarding.results import AppliedChanges
from pulsar_fleet.onboarding.steps import apply_onboarding
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_text, question

_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExecution:
    """A plan to execute.

    :param run_id: id of its records; that of an interrupted attempt, if there is one.
    :param conf: the request, without secrets.
    :param allow: ids of the irreversible and destructive changes that are allowed.
    :param undoes: the run that the plan undoes, or None.
    """

    run_id: str
    command: str
    plan: Plan
    source: ClusterConnection
    target: ClusterConnection
    conf: JsonObject
    allow: tuple[str, ...] = ()
    undoes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The result of a plan: changes by outcome, the first problems, and the exit state."""

    counts: Mapping[str, int]
    problems: tuple[str, ...]
    state: ExitState
    message: str = ""


def execute_plan(terminal: Terminal, execution: PlanExecution, *, ask: bool, dry_run: bool = False) -> NoReturn:
    """Show the plan, ask, apply, and exit; changes that are already in place are skipped. A dry run only shows it.

    :raises PreconditionFailed: the operator rejected the plan, or no change of it is allowed; nothing was sent.
    """
    if execution.plan.empty:
        terminal.say(
            plan_text(execution.plan) if execution.undoes is None else nothing_text(execution.undoes, execution.plan)
        )
        terminal.finish(
            _document(execution, ExecutionResult(counts={}, problems=(), state=ExitState.DONE)), ExitState.DONE
        )
    (terminal.show if ask and not dry_run else terminal.say)(plan_text(execution.plan))
    if dry_run:
        terminal.say("\nDry run: nothing has been changed.")
        planned = ExecutionResult(counts={}, problems=(), state=ExitState.DIFFERENT)
        terminal.finish({**_document(execution, planned), "dry_run": True}, ExitState.DIFFERENT)
    _require_agreement(terminal, execution, ask=ask)
    result = _apply(terminal, execution)
    complete = result.state is ExitState.DONE
    terminal.say(f"\n{applied_text(execution.plan.target, result.counts, result.problems, complete=complete)}")
    if result.message:
        terminal.note(result.message, style="red")
    if execution.undoes is None and result.counts.get(Outcome.APPLIED.value):
        undo = command_line("undo", execution.run_id)
        terminal.say(f"Undo it with: {undo}", undo)
    terminal.finish(_document(execution, result), result.state)


def _require_agreement(terminal: Terminal, execution: PlanExecution, *, ask: bool) -> None:
    unknown = sorted(set(execution.allow) - {change.id for change in execution.plan.needing_permission()})
    if unknown:
        terminal.note(f"--allow {listed(unknown)}: this plan has no such change that needs permission.", style="yellow")
    question_text = question(execution.plan, execution.allow)
    if not question_text:
        raise PreconditionFailed(
            "Every change of this plan needs permission: allow each with --allow ID. Nothing has been changed."
        )
    if ask and not terminal.confirm(question_text):
        raise PreconditionFailed("The plan was not approved. Nothing has been changed.")


def _apply(terminal: Terminal, execution: PlanExecution) -> ExecutionResult:
    """Apply and record; an error after the first recorded change is part of the result."""
    run = Run.open(execution.run_id)
    begin_run(terminal, run, execution.command, execution.conf)
    recorded_before = len(run.ledger.changes(run.id))
    try:
        with terminal.progress(f"Changing {execution.plan.target}", "changes") as progress:
            applied = run_interruptibly(_step(execution, run, progress))
        result = _ending(applied)
    except KeyboardInterrupt:
        result = _cut_off(run, recorded_before, "Interrupted. Run the same command again to continue.")
    except FleetError as error:
        result = _cut_off(run, recorded_before, str(error))
        if not result.counts:
            run.ledger.finish_run(run.id, "failed")
            raise
    run.ledger.finish_run(run.id, "succeeded" if result.state is ExitState.DONE else "failed")
    if execution.undoes and result.state is ExitState.DONE:
        run.ledger.finish_run(execution.undoes, "undone")
    return result


async def _step(execution: PlanExecution, run: Run, progress: Callable[[int, int], None]) -> AppliedChanges:
    run.artefacts.write_json(run.id, "plan.json", execution.plan.to_json())
    return await apply_onboarding(
        execution.source,
        execution.target,
        execution.plan,
        run.artefacts,
        run.ledger,
        run.id,
        allow=execution.allow,
        progress=progress,
    )


def _ending(applied: AppliedChanges) -> ExecutionResult:
    missed = {outcome for outcome, count in applied.counts.items() if count and not Outcome(outcome).in_place}
    state = ExitState.PARTLY if missed else ExitState.DONE
    if missed == {Outcome.REFUSED.value}:
        state = ExitState.REFUSED
    return ExecutionResult(counts=applied.counts, problems=applied.problems, state=state)


def _cut_off(run: Run, recorded_before: int, message: str) -> ExecutionResult:
    """The result of an interrupted attempt, from the ledger."""
    rows = run.ledger.changes(run.id)[recorded_before:]
    missed = [row for row in rows if not Outcome(row.outcome).in_place]
    return ExecutionResult(
        counts=Counter(row.outcome for row in rows),
        problems=tuple(f"{row.resource}: {row.outcome}: {row.detail}" for row in missed[:_MAX_PROBLEMS]),
        state=ExitState.PARTLY,
        message=message,
    )


def _document(execution: PlanExecution, result: ExecutionResult) -> JsonObject:
    return {
        "run": execution.run_id,
        "plan": execution.plan.id,
        "target": execution.plan.target,
        "counts": dict(result.counts),
        "problems": list(result.problems),
    }
