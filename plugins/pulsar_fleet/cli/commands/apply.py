"""`pulsar-fleet apply|undo`: the commands that change a cluster, after the operator's approval."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach, reach_two, require_cluster
from pulsar_fleet.cli.commands.plans import PlanFile, make_plan
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import Allow, AsJson, DryRun, Select, Subscriptions, Waivers, Yes
from pulsar_fleet.cli.runs import begin_run, new_run_id, require_permitted
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError, require_consent
from pulsar_fleet.cli.text import applied_text, findings_text, nothing_text
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, listed
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.onboarding.results import AppliedChanges
from pulsar_fleet.onboarding.steps import apply_onboarding
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.hazards import EffectiveValues
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_text, question
from pulsar_fleet.planning.target_values import read_target_values
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.preflight.findings import blockers

STDIN = "-"


def apply(
    first: Annotated[str, typer.Argument(metavar="PLAN|SOURCE", help="A stored plan (- is stdin), or the source.")],
    target: Annotated[
        str | None, typer.Argument(help="The target, if the first argument is a source: plan, then apply.")
    ] = None,
    select: Select = None,
    subscriptions: Subscriptions = True,
    waivers: Waivers = None,
    allow: Allow = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Apply a plan. Changes in place are skipped; after Ctrl-C the same command continues."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("a cluster", yes=yes or dry_run)
        if target is None:
            file = _stored_plan(first, narrowed=bool(select or waivers) or not subscriptions)
        else:
            line, file = make_plan(
                terminal, first, target, parse_selection(select or ()), subscriptions=subscriptions, waivers=waivers
            )
            terminal.say(line)
        if blockers(file.findings):
            terminal.say(findings_text(file.findings))
            document = {"plan": file.plan.id, "findings": [finding.to_json() for finding in file.findings]}
            terminal.finish(document, ExitState.REFUSED)
        execute_plan(terminal, _work(file, tuple(allow or ())), ask=not yes, dry_run=dry_run)


def undo(
    run: Annotated[
        str, typer.Argument(help="Id of the run, from the output of `apply`, or of a DAG run: dag_id/run_id.")
    ],
    target: Annotated[
        str | None, typer.Option(help="The cluster that it changed; default: as recorded by the run.")
    ] = None,
    allow: Allow = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Undo the changes of a run, last change first; each deletion of a created resource needs --allow."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("a cluster", yes=yes or dry_run)
        ledger = Ledger.open()
        plan = plan_undo(ledger, run)
        record = ledger.run(run)
        name = target or (record.conf.get("target") if record else None)
        if not name:
            raise UsageError(f"The run {run!r} did not record which cluster it changed: name it with --target.")
        reached = run_interruptibly(reach(named_cluster(str(name), Side.TARGET)))
        require_cluster(reached, plan.target, f"The run {run!r}")
        plan = plan_undo(ledger, run, run_interruptibly(_target_values(plan, reached.connection)))
        work = PlanExecution(
            run_id=new_run_id("undo"),
            command="undo",
            plan=plan,
            source=reached.connection,
            target=reached.connection,
            conf={"run": run, "target": name, "allow": list(allow or ())},
            allow=tuple(allow or ()),
            undoes=run,
        )
        execute_plan(terminal, work, ask=not yes, dry_run=dry_run)


async def _target_values(plan: Plan, connection: ClusterConnection) -> EffectiveValues:
    async with AdminClient(connection) as admin:
        return await read_target_values(plan, admin, open_redactor())


def _stored_plan(name: str, *, narrowed: bool) -> PlanFile:
    if narrowed:
        raise UsageError("A stored plan is applied without changes: use its options with 'plan'.")
    if name == STDIN:
        return PlanFile.from_text(sys.stdin.read(), "stdin")
    try:
        return PlanFile.from_text(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"There is no plan {name!r}: give a file written by 'plan --out', or a source and a target."
        ) from error


def _work(file: PlanFile, allow: tuple[str, ...]) -> PlanExecution:
    """The execution of the plan; both connections must lead to the clusters of the plan."""
    sides = named_cluster(file.source, Side.SOURCE), named_cluster(file.target, Side.TARGET)
    source, target = run_interruptibly(reach_two(*sides))
    for reached, name in ((source, file.plan.source), (target, file.plan.target)):
        require_cluster(reached, name, f"The plan {file.plan.id}")
    return PlanExecution(
        run_id=_run_id(file),
        command="apply",
        plan=file.plan,
        source=source.connection,
        target=target.connection,
        conf={
            "source": file.source,
            "target": file.target,
            "selection": list(file.selection),
            "subscriptions": file.subscriptions,
            "plan": file.plan.id,
            "allow": list(allow),
        },
        allow=allow,
    )


def _run_id(file: PlanFile) -> str:
    """The unfinished run of an earlier attempt, which is then completed; else a new run."""
    run_id = f"cli/apply-{file.run.rpartition('/plan-')[2]}"
    record = Ledger.open().run(run_id)
    return new_run_id("apply") if record and record.over else run_id


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
    result = _apply_changes(terminal, execution)
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
    if execution.undoes is None:
        # To undo something is not held up by a rule.
        require_permitted(yes=not ask)
    if ask:
        terminal.require_answer(question_text, "plan")


def _apply_changes(terminal: Terminal, execution: PlanExecution) -> ExecutionResult:
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
