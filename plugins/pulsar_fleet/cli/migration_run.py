"""Migrations and failbacks on the terminal: what is special to each, the end of a run, and the runs of next waves."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NoReturn

from pulsar_fleet.cli.interrupts import Interrupted, Interrupts
from pulsar_fleet.cli.procedure_run import ProcedureRun
from pulsar_fleet.cli.runs import begin_run
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.ledger.approval import read_approval
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.model import Moves, Phase, is_reversible, reversal_text
from pulsar_fleet.migration.procedure import Failback, Migration
from pulsar_fleet.migration.repoint.steps import wait_repointed
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.preflight.findings import count_line, findings_markdown
from pulsar_fleet.report.migration import store_migration_report


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
