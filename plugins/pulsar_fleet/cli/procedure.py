"""The command of a procedure: the steps of its DAG, with a question, progress, Ctrl-C and --resume."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach
from pulsar_fleet.cli.interrupts import run_step
from pulsar_fleet.cli.options import CLUSTER_HELP, Resume, Yes
from pulsar_fleet.cli.runs import begin_run, new_run_id, require_approval, resumable_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.approval import APPROVED, read_approval
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.preflight.findings import refusal_text
from pulsar_fleet.procedures import runner
from pulsar_fleet.procedures.procedure import CHECK, Procedure, Session

Result = TypeVar("Result")


def command_of(procedure: Procedure) -> Callable[..., None]:
    """The command, for an entry point of the group `pulsar_fleet.commands`."""

    @with_settings(
        procedure.settings,
        arguments={name: f"{text} {CLUSTER_HELP}" for name, text in procedure.clusters.items()},
        required=False,
    )
    def command(terminal: Terminal, conf: JsonObject, resume: Resume = None, yes: Yes = False) -> None:
        if not conf["dry_run"]:
            require_consent("clusters", yes=yes)
        run, conf = _resumed(procedure, resume, conf) if resume else _begun(terminal, procedure, conf)
        document, state = _ProcedureRun(terminal, procedure, run, conf, yes=yes).execute()
        terminal.finish(document, state)

    command.__doc__ = f"{procedure.summary} After Ctrl-C --resume continues."
    return command


def main(procedure: Procedure) -> None:
    """Run the command of a module: `python -m MODULE CLUSTER …`."""
    typer.run(command_of(procedure))


class _ProcedureRun:
    """One run; a resumed one whose plan was approved does what is left."""

    def __init__(self, terminal: Terminal, procedure: Procedure, run: Run, conf: JsonObject, *, yes: bool) -> None:
        self._terminal = terminal
        self._procedure = procedure
        self._run = run
        self._conf = conf
        self._yes = yes
        self._current = CHECK

    def execute(self) -> tuple[JsonObject, ExitState]:
        """Run the steps that are left, write the report and end the run in the ledger.

        :raises FleetError: a step failed before the first one that changes something had begun.
        """
        problem: FleetError | KeyboardInterrupt | None = None
        try:
            self._execute()
        except (FleetError, KeyboardInterrupt) as error:
            problem = error
        failed = {self._current: str(problem) or "interrupted"} if problem else {}
        report = runner.write_report(self._procedure, self._run, failed)
        self._run.ledger.finish_run(self._run.id, "failed" if failed else "succeeded")
        if isinstance(problem, FleetError) and self._current == CHECK:
            raise problem
        self._terminal.say(report.markdown())
        document: JsonObject = {"run": self._run.id, "failed": list(failed), "report": report.markdown()}
        if problem is None:
            return document, ExitState.DONE
        word = self._procedure.name.replace("_", "-")
        self._terminal.note(f"Continue with the same command and --resume {self._run.id} ({word}).")
        return document, ExitState.INTERRUPTED if self._current == CHECK else ExitState.PARTLY

    def _execute(self) -> None:
        approval = read_approval(self._run)
        if not (approval and approval["answer"] == APPROVED) and not self._approve():
            return
        for step in self._procedure.work:
            if not runner.has_run(self._run, step.name):
                self._current = step.name
                self._step(step.name, lambda session: runner.run_step(self._procedure, self._current, session))

    def _approve(self) -> bool:
        """Whether the steps may begin; a dry run and a plan without changes end here."""
        planned = self._step(CHECK, lambda session: runner.check(self._procedure, session))
        findings = runner.read_findings(self._run)
        shown = [planned["headline"], *(finding.text() for finding in findings), runner.read_changes(self._run)]
        self._terminal.show("\n".join(filter(None, shown)))
        if self._conf["dry_run"]:
            return False
        if planned["blockers"]:
            raise PreconditionFailed(refusal_text(findings, "Nothing has been changed."))
        question = f"Make these {planned['changes']} changes?" if planned["changes"] else None
        require_approval(self._terminal, self._run, f"plan {planned['id']}", question, yes=self._yes, subject="plan")
        return True

    def _step(self, name: str, work: Callable[[Session], Awaitable[Result]]) -> Result:
        async def step() -> Result:
            connections = {
                cluster: (await reach(named_cluster(self._conf[cluster], Side.SOURCE))).connection
                for cluster in self._procedure.clusters
            }
            async with runner.open_session(self._conf, self._run, connections) as session:
                return await work(session)

        return run_step(self._terminal, name, step())


def _begun(terminal: Terminal, procedure: Procedure, conf: JsonObject) -> tuple[Run, JsonObject]:
    if missing := [name for name in procedure.clusters if not conf[name]]:
        raise UsageError(f"Name the {missing[0].replace('_', ' ')}: its admin URL or its Airflow connection id.")
    with usage_errors():
        procedure.validate(conf)
    run = Run.open(new_run_id(procedure.name.replace("_", "-")))
    begin_run(terminal, run, procedure.name, conf)
    return run, conf


def _resumed(procedure: Procedure, run_id: str, conf: JsonObject) -> tuple[Run, JsonObject]:
    if any(conf[name] for name in procedure.clusters):
        raise UsageError("--resume uses the recorded clusters and settings: give no other argument but --yes.")
    run, recorded = resumable_run(run_id, procedure.name)
    run.ledger.resume_run(run_id)
    return run, recorded
