"""Migrations and failbacks on the terminal: the steps of the DAG in its order, and the runs of next waves."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, NoReturn, TypeVar

from pulsar_fleet.cli.interrupts import Interrupted, Interrupts
from pulsar_fleet.cli.runs import begin_run, require_approval
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.ledger.approval import read_approval
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.drain.steps import monitor_until_drained
from pulsar_fleet.migration.model import Move, Moves, Phase, is_reversible, reversal_text
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings
from pulsar_fleet.migration.procedure import Failback, Migration, Procedure
from pulsar_fleet.migration.repoint.steps import wait_repointed
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.preflight.findings import count_line, findings_markdown
from pulsar_fleet.procedures.copy_wait import wait_replicated
from pulsar_fleet.report.migration import store_migration_report

Result = TypeVar("Result")


class ProcedureRun(ABC):
    """One run; steps that an earlier attempt of the run has done are left out.

    :param yes: approve without a question.
    """

    OLD: ClassVar[str]
    """The cluster that the namespaces leave, in the names of the steps; `NEW` is the other."""
    NEW: ClassVar[str]
    APPROVAL: ClassVar[str] = "approve_wave"
    """The name of the step that asks."""

    def __init__(self, terminal: Terminal, interrupts: Interrupts, procedure: Procedure, *, yes: bool) -> None:
        self.terminal = terminal
        self.interrupts = interrupts
        self.records = procedure.run
        self.yes = yes
        self.done: list[JsonObject] = []
        self.current = ""
        self._procedure = procedure
        self._sides = procedure.sides
        self._update: Callable[[str], None] = terminal.note

    def execute(self) -> bool:
        """Run the steps that are left; returns False after a dry run."""
        if not self.reached.any(Phase.FROZEN) and not self.prepare():
            return False
        moves = self.moves()
        self._copy(moves)
        if not self.reached.all(moves, Phase.CUT_OVER):
            self._cut_over(moves)
        self._verify(moves)
        if not self.reached.all(moves, Phase.CLEANED):
            self.step(f"clean_up_{self.OLD}", self._procedure.clean_up(moves, self._original), _leftovers)
        return True

    @abstractmethod
    def prepare(self) -> bool:
        """Everything before the freeze, with the approval; returns False after a dry run."""

    @abstractmethod
    def wait_for_window(self) -> None:
        """Wait until the cut-over is allowed."""

    @abstractmethod
    def wait_repointed(self, moves: Moves) -> None:
        """Wait until the applications that the old cluster does not redirect have left it."""

    def restore(self) -> None:
        """Restore the settings of the old cluster, whatever happened before."""
        finish = "The original settings are restored first."
        self.step(
            f"restore_{self.OLD}", self._procedure.restore(), lambda done: counted(len(done or ()), "change"), finish
        )

    def step(
        self,
        name: str,
        work: Coroutine[Any, Any, Result],
        text: Callable[[Result], str] = str,
        finish: str = "",
    ) -> Result:
        """Run a step, and print a line with its duration and what it did.

        :param finish: see `Interrupts.run`.
        """
        self.current, began = name, time.monotonic()
        with self.terminal.status(name) as self._update:
            result = self.interrupts.run(work, finish=finish)
        seconds, line = time.monotonic() - began, text(result)
        self.done.append({"step": name, "seconds": round(seconds, 1), "result": line})
        self.terminal.note(f"{name:<22}{seconds:7.1f} s  {line}".rstrip())
        return result

    def ask(self, about: str, text: str, question: str) -> None:
        """Show what will happen, ask, and store the answer; a rejection raises `PreconditionFailed`."""
        self.current = self.APPROVAL
        (self.terminal.say if self.yes else self.terminal.show)(text)
        require_approval(self.terminal, self.records, about, question, yes=self.yes)

    def prepare_new(self, moves: Moves) -> None:
        """Create on the new cluster what the clients need and it lacks."""
        prepared = steps.prepare_green(self._sides, self.records, moves)
        self.step(f"prepare_{self.NEW}", prepared, lambda counts: counted(counts["changes"], "change"))

    def moves(self) -> Moves:
        """What moves in this run."""
        moves = find_moves(self.records)
        if moves is None:
            raise NotFound(f"The records of {self.records.id!r} have no list of what moves: start a new run.")
        return moves

    def progress(self, line: str) -> None:
        """Show how far the current step is."""
        self._update(line)

    @property
    def reached(self) -> Reached:
        """The phases of the namespaces, as the ledger has them now."""
        return Reached.of(self.records)

    @property
    def _original(self) -> OriginalSettings:
        original = find_original_settings(self.records)
        if original is None:
            raise NotFound(f"The records of {self.records.id!r} have no original settings: start a new run.")
        return original

    def _copy(self, moves: Moves) -> None:
        """Freeze the old cluster and copy its messages, for namespaces whose copy was not verified yet."""
        starting = self.reached.before(moves, Phase.REPLICATED)
        if not starting.moves:
            return
        frozen = steps.freeze_blue(self._sides, self.records, starting)
        self.step(f"freeze_{self.OLD}", frozen, lambda _: "the original settings are stored")
        replicating = steps.start_replication(self._sides, self.records, starting)
        self.step(
            "start_replication", replicating, lambda count: f"{count} of {counted(len(starting.moves), 'namespace')}"
        )
        waiting = wait_replicated(
            self._sides,
            self.records,
            starting,
            seconds=self._seconds,
            poll_seconds=POLL_SECONDS,
            progress=self.progress,
        )
        self.step("wait_replicated", waiting, lambda line: f"near its end, {line}")

    def _cut_over(self, moves: Moves) -> None:
        """Cut over one namespace after the other; a signal stops between two of them."""
        self.step("verify_copy", self._procedure.verify_copy(moves), _counts)
        self.wait_for_window()
        self.wait_repointed(moves)
        for move in self.reached.before(moves, Phase.CUT_OVER).moves:
            self._cut_over_namespace(moves, move)
            if self.interrupts.requested:
                raise PreconditionFailed(f"Stopped after the cut-over of {move.namespace}.")

    def _cut_over_namespace(self, moves: Moves, move: Move) -> None:
        cutting_over = self._procedure.cut_over(replace(moves, moves=(move,)), self._original)
        finish = f"The cut-over of {move.namespace} is finished first."
        self.step("cut_over", cutting_over, lambda _: str(move.namespace), finish)

    def _verify(self, moves: Moves) -> None:
        """Verify cursors and messages; the drain is monitored to its end also if a cursor is not as stated."""
        if self.reached.all(moves, Phase.VERIFIED):
            return
        failure: FleetError | None = None
        try:
            self.step("verify_subscriptions", steps.verify_subscriptions(self._sides, self.records, moves), _counts)
        except FleetError as error:
            self.terminal.note(str(error), style="red")
            failure = error
        if not self.reached.all(moves, Phase.DRAINED):
            drain = monitor_until_drained(
                self._sides,
                self.records,
                moves,
                seconds=self._seconds,
                poll_seconds=POLL_SECONDS,
                progress=self.progress,
            )
            self.step("wait_drained", drain, lambda status: status.line())
        if failure:
            self.current = "verify_subscriptions"
            raise failure
        self.step("verify_messages", self._procedure.verify_messages(moves), _counts)

    @property
    def _seconds(self) -> float:
        return self._procedure.request.drain_timeout_minutes * 60


def _counts(document: JsonObject) -> str:
    return ", ".join(f"{name} {value}" for name, value in document.items())


def _leftovers(results: JsonObject) -> str:
    return " ".join(str(result["text"]) for result in results.values())


class MigrationRun(ProcedureRun):
    """A migration: one wave."""

    OLD = "blue"
    NEW = "green"

    def __init__(self, terminal: Terminal, interrupts: Interrupts, migration: Migration, *, yes: bool) -> None:
        super().__init__(terminal, interrupts, migration, yes=yes)
        self._migration = migration

    def prepare(self) -> bool:
        """Evaluate the gates, ask for the approval of the wave, prepare green and evaluate the gates again."""
        migration = self._migration
        if not self.reached.any(Phase.PREPARED):
            names = self.step(
                "read_request", migration.select_namespaces(), lambda names: counted(len(names), "namespace")
            )
            wave, _ = self.step("check_gates", migration.check_gates(names), lambda checked: count_line(checked[1]))
            text = f"{wave.headline}\n\n{self.records.artefacts.read(wave.text).decode()}"
            if migration.request.dry_run:
                self.terminal.say(f"{text}\nDry run: every gate was evaluated. Nothing has been changed.")
                return False
            self.ask(f"wave {wave.number}", text, f"Approve wave {wave.number} of {wave.waves}?")
        moves = self.moves()
        self.prepare_new(moves)
        self.step("recheck_gates", migration.recheck_gates(moves), count_line)
        return True

    def wait_for_window(self) -> None:
        """Wait for a change window."""
        self.step("wait_for_window", self._window())

    def wait_repointed(self, moves: Moves) -> None:
        """Wait until the owners of the applications have connected them to green, where blue redirects none."""
        if all(move.strategy.redirects for move in moves.moves):
            return
        waiting = wait_repointed(
            self._migration.sides,
            self.records,
            moves,
            seconds=self._migration.request.repoint_timeout_minutes * 60.0,
            poll_seconds=POLL_SECONDS,
            progress=self.progress,
        )
        self.step("wait_repointed", waiting)

    async def _window(self) -> str:
        while not (window := self._migration.calendar.permission(datetime.now(UTC), "This wave")).granted:
            if window.opens is None:
                raise PreconditionFailed(window.sentence)
            self.progress(window.sentence)
            await self._migration.keep_lease()
            await asyncio.sleep(POLL_SECONDS)
        return window.sentence


class FailbackRun(ProcedureRun):
    """A failback: blue is reopened first."""

    OLD = "green"
    NEW = "blue"
    # A failback on Airflow is triggered with its permission.
    APPROVAL = "check_failback"

    def __init__(self, terminal: Terminal, interrupts: Interrupts, failback: Failback, *, yes: bool) -> None:
        super().__init__(terminal, interrupts, failback, yes=yes)
        self._failback = failback

    def prepare(self) -> bool:
        """Evaluate checks and gates, ask, reopen blue, evaluate the gates again and prepare blue."""
        failback, names = self._failback, listed(self._failback.namespaces)
        self.step("read_request", failback.require_namespaces(), lambda _: names)
        findings = findings_markdown(self.step("check_failback", failback.check_failback(), count_line))
        if failback.request.dry_run:
            self.terminal.say(f"{findings}\nDry run: every check passed. Nothing has been changed.")
            return False
        home, away = failback.clusters.blue.name, failback.clusters.green.name
        text = (
            f"{findings}\n{names}: {home} is reopened, and its terminated topics are removed and recreated. From then "
            f"on an application that restarts stays on {home}."
        )
        self.ask(f"failback of {names}", text, f"Move these namespaces back from {away} to {home}?")
        self.step("reopen_blue", failback.reopen_blue(), lambda reopened: counted(len(reopened), "namespace"))
        self.step("check_gates", failback.check_gates(), lambda checked: count_line(checked[1]))
        self.prepare_new(self.moves())
        return True

    def wait_for_window(self) -> None:
        """A failback has no change windows."""

    def wait_repointed(self, moves: Moves) -> None:
        """A failback redirects all applications."""


def run_migration(terminal: Terminal, migration: Migration, *, yes: bool) -> NoReturn:
    """Run a wave and then the next ones, each with its own approval, and exit."""
    interrupts, documents = Interrupts(terminal.note), []
    following: Migration | None = migration
    state = ExitState.DONE
    while following:
        migration, following = following, None
        document, state = _run_to_end(MigrationRun(terminal, interrupts, migration, yes=yes))
        documents.append(document)
        if state is ExitState.DONE and not migration.request.dry_run:
            following = _next_migration(terminal, migration)
    terminal.finish({"runs": documents}, state)


def run_failback(terminal: Terminal, failback: Failback, *, yes: bool) -> NoReturn:
    """Run a failback, and exit."""
    document, state = _run_to_end(FailbackRun(terminal, Interrupts(terminal.note), failback, yes=yes))
    terminal.finish({"runs": [document]}, state)


def _run_to_end(run: ProcedureRun) -> tuple[JsonObject, ExitState]:
    """Run the steps that are left, restore the settings, store the report and end the run in the ledger.

    An error before the first change is raised, after the run has ended.
    """
    records, complete = run.records, False
    problem: BaseException | None = None
    failed: dict[str, str] = {}
    try:
        complete = run.execute()
    except (Exception, KeyboardInterrupt) as error:
        problem, failed = error, {run.current: _reason(error)}
    changed = _has_changed(records)
    try:
        if changed:
            run.restore()
    except (FleetError, Interrupted, KeyboardInterrupt) as error:
        run.terminal.note(f"The settings are not restored: {error or 'interrupted'}", style="red")
        problem, failed = problem or error, {**failed, run.current: _reason(error)}
    report = store_migration_report(records, failed, read_approval(records)).markdown()
    records.ledger.finish_run(records.id, "failed" if failed else "succeeded")
    document: JsonObject = {"run": records.id, "failed": list(failed), "steps": run.done, "report": report}
    if problem is None:
        if complete:
            run.terminal.say(report)
        return document, ExitState.DONE
    if changed:
        text, commands = _left_in_place(run)
        run.terminal.note(text, *commands)
    stopped = isinstance(problem, Interrupted | KeyboardInterrupt)
    if not (stopped or (changed and isinstance(problem, FleetError))):
        raise problem
    run.terminal.note(f"{next(iter(failed))}: {'interrupted.' if stopped else problem}", style="red")
    return document, ExitState.PARTLY if changed else ExitState.INTERRUPTED


def _reason(error: BaseException) -> str:
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return "interrupted"
    return str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"


def _has_changed(records: Run) -> bool:
    """Whether the run has changed a cluster."""
    phases = Reached.of(records).phases.values()
    return bool(records.ledger.changes(records.id)) or any(phase is not Phase.CHECKED for phase in phases)


def _left_in_place(run: ProcedureRun) -> tuple[str, list[str]]:
    """What can still be undone for each namespace, how to go on, and the commands of that."""
    phases = Reached.of(run.records).phases
    command = "migrate" if isinstance(run, MigrationRun) else "fail-back"
    lines = [f"{name} is {phase.value}: {reversal_text(phase)}." for name, phase in phases.items()]
    commands = [command_line(command, "--resume", run.records.id)]
    lines.append(f"Continue with: {commands[0]}")
    if isinstance(run, MigrationRun) and all(is_reversible(phase) for phase in phases.values()):
        commands.append(command_line("abort", run.records.id))
        lines.append(f"Undo it with:  {commands[1]}")
    return "\n".join(lines), commands


def _next_migration(terminal: Terminal, migration: Migration) -> Migration | None:
    """The run of the next wave; None after the last wave, or if `next_waves` is off."""
    number = migration.next_wave()
    if number is None:
        return None
    run_id, settings = migration.next_run(number)
    if not migration.request.next_waves:
        first = settings["continues"]
        terminal.say(f"Wave {number} is left: start it with the same clusters and --continues {first} --wave {number}.")
        return None
    conf, run = {**asdict(migration.request), **settings}, Run.open(run_id)
    begin_run(terminal, run, Migration.NAME, conf, command="migrate")
    return Migration.of(conf, migration.clusters, run)
