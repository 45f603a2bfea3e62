"""The command of a procedure: the steps of its DAG, with a question, progress, Ctrl-C and --resume."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, repeat
from typing import NoReturn, TypeVar

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach, reach_all
from pulsar_fleet.cli.interrupts import Interrupts
from pulsar_fleet.cli.options import CLUSTER_HELP, Resume, Yes
from pulsar_fleet.cli.runs import begin_run, grant, new_run_id, require_approval, resumable_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import (
    ExitState,
    Terminal,
    UsageError,
    error_document,
    require_consent,
    state_of,
    usage_errors,
)
from pulsar_fleet.cli.text import findings_text
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import ExecutedElsewhere, FleetError, PlanOutdated, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.ledger.approval import APPROVED, read_approval
from pulsar_fleet.ledger.run import Run, this_process
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.preflight.findings import count_line, refusal_text
from pulsar_fleet.procedures import runner
from pulsar_fleet.procedures.procedure import (
    Batches,
    Checked,
    Done,
    Ending,
    NextRun,
    Procedure,
    Session,
    Skipped,
    Step,
    Unmet,
)
from pulsar_fleet.report.failure import reason_of

Result = TypeVar("Result")


def command_of(procedure: Procedure, program: str = "pulsar-fleet") -> Callable[..., None]:
    """The command, for an entry point of the group `pulsar_fleet.commands`.

    :param program: before its name; empty where it is a program of its own.
    """

    options = with_settings(
        procedure.settings,
        arguments={name: _argument_help(procedure, name) for name in procedure.arguments},
        required=False,
    )

    def run(terminal: Terminal, conf: JsonObject, resume: str | None, *, yes: bool) -> None:
        word = procedure.word if program else ""
        if resume:
            begun, conf, over = _resumed(procedure, resume, conf, yes=yes)
            if over:
                _say_how_it_ended(terminal, procedure, begun, conf)
        else:
            begun, conf = _begun(terminal, procedure, conf, word, yes=yes)
        documents, resumed = list[JsonObject](), bool(resume)
        with Interrupts(terminal.note) as interrupts:
            while True:
                one = _ProcedureRun(terminal, interrupts, procedure, begun, conf, word, yes=yes)
                document, state = one.execute(resumed=resumed)
                documents.append(document)
                after = _following(terminal, procedure, begun, conf) if state is ExitState.DONE else None
                if after is None:
                    break
                if interrupts.requested:
                    terminal.note(f"Stopped before {after.id} began. {after.by_hand}")
                    state = ExitState.PARTLY
                    break
                before, begun = begun, Run.open(after.id, this_process())
                conf, resumed = {**conf, **after.settings}, False
                name = procedure.recorded_as or procedure.name
                begin_run(terminal, begun, name, conf, command=word, continues=before)
        terminal.finish({"runs": documents} if procedure.lists_runs else document, state)

    def changing(terminal: Terminal, conf: JsonObject, resume: Resume = None, yes: Yes = False) -> None:
        run(terminal, conf, resume, yes=yes)

    def reading(terminal: Terminal, conf: JsonObject, resume: Resume = None) -> None:
        run(terminal, conf, resume, yes=True)

    command = options(reading if procedure.changes is None else changing)
    command.__doc__ = f"{procedure.summary} After Ctrl-C --resume continues."
    return command


def _argument_help(procedure: Procedure, name: str) -> str:
    if name in procedure.own_settings:
        return procedure.clusters.get(name) or procedure.own_settings[name].description
    return f"{procedure.clusters[name]} {CLUSTER_HELP}"


def main(procedure: Procedure) -> None:
    """Run the command of a module: `python -m MODULE CLUSTER …`."""
    typer.run(command_of(procedure, program=""))


class _Blocked(PreconditionFailed):
    """The check found what forbids the run; its result is a result of the command."""


class _ProcedureRun:
    """One run; a resumed one whose plan was approved does what is left."""

    def __init__(
        self,
        terminal: Terminal,
        interrupts: Interrupts,
        procedure: Procedure,
        run: Run,
        conf: JsonObject,
        word: str,
        *,
        yes: bool,
    ) -> None:
        self._terminal = terminal
        self._interrupts = interrupts
        self._procedure = procedure
        self._run = run
        self._conf = conf
        self._word = word
        self._yes = yes
        self._current = procedure.opening
        self._connections: dict[str, Sequence[ClusterConnection]] = {}
        self._absent: dict[str, float] = {}
        self._done: list[JsonObject] = []

    def execute(self, *, resumed: bool) -> tuple[JsonObject, ExitState]:
        """Run the steps that are left, write the report and end the run in the ledger.

        :raises Exception: a step failed before the first one that changes something had begun, or by a defect.
        """
        if resumed:
            # Refused for its clusters, or for a process that executes it, nothing is recorded and nothing restored.
            self._require()
            self._run.ledger.resume_run(self._run.id)
        try:
            failures = self._failures(resumed=resumed)
            changed = runner.may_have_changed(self._run)
            failed = {name: _reason(error) for name, error in failures.items()}
            ending = runner.end(self._procedure, self._run, self._conf, failed)
        except BaseException as error:
            if not isinstance(error, ExecutedElsewhere):
                self._run.ledger.finish_run(self._run.id, "failed")
            raise
        self._run.ledger.finish_run(self._run.id, "failed" if failed else "succeeded")
        document: JsonObject = {"run": self._run.id, "steps": self._done, **ending.document}
        problem = next(iter(failures.values()), None)
        if isinstance(problem, FleetError) and not changed:
            self._terminal.note(f"Run {self._run.id} has stopped:")
            self._terminal.note(str(problem), style="red")
            shown = document if isinstance(problem, _Blocked) else {"run": self._run.id}
            return {**shown, "error": error_document(problem)}, state_of(problem)
        if problem and not isinstance(problem, FleetError | KeyboardInterrupt):
            self._say_what_next(problem, ending)
            raise problem
        self._terminal.say((ending.report.markdown() if failed else ending.text).strip(), *ending.commands)
        if problem is None:
            stored: JsonObject = {"state": ending.ended.name, "document": document}
            self._run.artefacts.write_json(self._run.id, _ENDED, stored)
            return document, ExitState[ending.ended.name]
        for name, reason in failed.items():
            self._terminal.note(f"{name}: {reason}{'.' if reason == INTERRUPTED else ''}", style="red")
        self._say_what_next(problem, ending)
        errors = {name: error_document(error) for name, error in failures.items()}
        state = ExitState.PARTLY if changed else ExitState.INTERRUPTED
        return {"failed": list(failed), "errors": errors, **document}, state

    def _failures(self, *, resumed: bool) -> dict[str, Exception | KeyboardInterrupt]:
        """Run the steps, and at the end the one that follows also a failure; returns what failed."""
        failures: dict[str, Exception | KeyboardInterrupt] = {}
        try:
            if not resumed:
                self._require()
            self._execute()
        except ExecutedElsewhere:
            # Record, report and restoration are the other process's.
            raise
        except (Exception, KeyboardInterrupt) as error:
            failures[self._current] = error
        if self._procedure.always and runner.may_have_changed(self._run):
            try:
                self._do(self._procedure.always, {})
            except (Exception, KeyboardInterrupt) as error:
                failures[self._current] = error
        return failures

    def _say_what_next(self, problem: Exception | KeyboardInterrupt, ending: Ending) -> None:
        if ending.instead:
            self._terminal.note(ending.instead)
        elif isinstance(problem, PlanOutdated):
            text = f"--resume would go on with {self._run.id} by a plan that the clusters no longer fit."
            self._terminal.note(f"Start a new run: {text}")
        elif self._word:
            command = command_line(self._word, "--resume", self._run.id)
            self._terminal.note(f"Continue with: {command}", command)
        else:
            self._terminal.note(f"Continue with the same command and --resume {self._run.id}.")
        for number, command in enumerate(ending.undo):
            self._terminal.note(f"{'Undo it with: ' if number == 0 else 'then with:    '} {command}", command)

    def _is_begun(self) -> bool:
        """Whether an earlier attempt has passed the check and the approval."""
        if self._procedure.begun:
            return self._procedure.begun(self._run)
        approval = read_approval(self._run)
        # One that an earlier release has planned is planned again.
        return approval is not None and approval["answer"] == APPROVED and runner.is_planned(self._run)

    def _require(self) -> None:
        if self._procedure.require and (self._procedure.begun or not self._is_begun()):
            with usage_errors():
                self._step(self._procedure.opening, self._procedure.require)

    def _execute(self) -> None:
        if self._procedure.check and not self._is_begun() and not self._approve():
            return
        work = self._procedure.work
        if not isinstance(work, Batches):
            self._do_all(work, {})
            return
        with usage_errors():
            # Read again, the parts of a run that goes on could be others than those whose steps have ended.
            read = partial(self._step, self._current, lambda session: runner.read_batches(work, session))
            parts = runner.stored_batches(self._run) or read()
        for part in parts:
            self._do_all(work.steps, part)

    def _do_all(self, steps: Sequence[Step], batch: JsonObject) -> None:
        """Do the steps that are left, as Airflow does: none after one that is unmet, or that was skipped of a run.

        A step beside one that has failed is done all the same.
        """
        failed, failure = "", None
        for step in steps:
            if failure and not step.beside:
                break
            try:
                said = self._do(step, batch)
            except FleetError as error:
                if failure or not any(other.beside for other in steps[steps.index(step) + 1 :][:1]):
                    raise
                self._terminal.note(f"{step.name}: {error}", style="red")
                failed, failure = step.name, error
                continue
            if isinstance(said, Unmet) and self._procedure.end is None:
                raise PreconditionFailed(said.said)
            if isinstance(said, Unmet) or (isinstance(said, Skipped) and not batch):
                break
            if step.shows and isinstance(said, str | Done):
                (self._terminal.say if self._yes else self._terminal.show)(said if isinstance(said, str) else said.said)
        if failure:
            self._current = failed
            raise failure

    def _do(self, step: Step, batch: JsonObject) -> object:
        """Do a step, unless an earlier attempt has, and return what it says or has said."""
        session = Session(self._conf, self._run, {}, batch=batch)
        said: object = runner.said_by(session, step.name)
        left = not step.reached(self._run) if step.reached else said is None
        if not left or not (step.reads or self._procedure.may_change(self._conf)):
            return said
        self._current = step.name
        if step is not self._procedure.always:
            # Before a change is noted.
            self._interrupts.stop()
        if step.asks:
            self._ask(step, session)
        with nullcontext() if step.reads else runner.noting_change(self._procedure, self._run):
            return self._step(step.name, partial(runner.wait_for, step), batch, step)

    def _ask(self, step: Step, session: Session) -> None:
        """Ask before a step; what a person allows then is allowed in this process only."""
        assert step.asks is not None
        if (question := step.asks(session)) is None:
            return
        changed = runner.may_have_changed(self._run)
        with self._interrupts.at_once():
            require_approval(self._terminal, self._run, step.name, question.text, yes=self._yes, changed=changed)
            allowed = frozenset() if self._yes else grant(self._terminal, self._run, question.permissions)
        if allowed:
            self._conf = {**self._conf, "allow_changes": [*self._conf["allow_changes"], *sorted(allowed)]}

    def _approve(self) -> bool:
        """Whether the steps may begin; a dry run and a plan without changes end here."""
        for look in self._procedure.looks:
            self._current = look.name
            self._step(look.name, partial(runner.run_step, look))
        self._current = self._procedure.checks or self._procedure.opening
        planned, checked = self._step(self._current, lambda session: runner.check(self._procedure, session))
        findings, dry_run = checked.findings, not self._procedure.may_change(self._conf)
        parts = (planned["headline"], findings_text(findings) if findings else "", checked.plain or checked.markdown())
        (self._terminal.say if self._yes or dry_run else self._terminal.show)("\n\n".join(filter(None, parts)))
        if planned["blockers"]:
            changed = runner.may_have_changed(self._run)
            state = "What an earlier attempt has changed stays." if changed else "Nothing has been changed."
            raise _Blocked(refusal_text(findings, state))
        if dry_run:
            return False
        if checked.refusal:
            raise PreconditionFailed(checked.refusal)
        question = (checked.question or f"Make these {planned['changes']} changes?") if planned["changes"] else None
        self._current = self._procedure.approves
        subject = checked.about or "plan"
        with self._interrupts.at_once():
            require_approval(self._terminal, self._run, planned["about"], question, yes=self._yes, subject=subject)
        return True

    def _step(
        self,
        name: str,
        work: Callable[[Session], Awaitable[Result]],
        batch: JsonObject | None = None,
        step: Step | None = None,
    ) -> Result:
        """Run it with the clusters, and print a line with its duration and what it did."""

        async def run(say: Callable[[str], None]) -> Result:
            for setting, sides in _named(self._procedure, self._conf).items():
                known = self._connections.get(setting)
                # One of a list that did not answer a moment ago may answer now.
                if known is None or (self._may_be_absent(setting) and not all(one.service_url for one in known)):
                    self._connections[setting] = await self._reached(setting, sides)
            every = {one.argument: one for sides in self._connections.values() for one in sides}
            named = self._procedure.batch_connections(batch).items()
            own = {key: [every[name] for name in names] for key, names in named}
            of_step = {"batch": batch or {}, "say": say, "stopping": lambda: self._interrupts.requested}
            async with runner.open_session(self._conf, self._run, {**self._connections, **own}, **of_step) as session:
                return await work(session)

        began = time.monotonic()
        with self._terminal.status(name) as say:
            last = step is not None and step is self._procedure.always
            result = self._interrupts.run(run(say), finish=step.finish if step else "", last=last)
        seconds, line = time.monotonic() - began, "" if step and step.shows else _line(result)
        self._done.append({"step": name, "seconds": round(seconds, 1), "result": line})
        self._terminal.note(f"{name:<22}{seconds:7.1f} s  {line}".rstrip())
        return result

    async def _reached(self, setting: str, sides: Sequence[ClusterConnection]) -> Sequence[ClusterConnection]:
        if isinstance(self._conf[setting], list):
            return await reach_all(sides)
        if setting in self._procedure.may_be_absent:
            if time.monotonic() - self._absent.get(setting, -_ABSENT_SECONDS) >= _ABSENT_SECONDS:
                try:
                    return [(await reach(side)).connection for side in sides]
                except FleetError:
                    self._absent[setting] = time.monotonic()
            return sides
        return [(await reach(side)).connection for side in sides]

    def _may_be_absent(self, setting: str) -> bool:
        """Whether the procedure decides what a cluster means that does not answer, as of each in a list."""
        return isinstance(self._conf[setting], list) or setting in self._procedure.may_be_absent


INTERRUPTED = "interrupted"
_ABSENT_SECONDS = 20.0
"""How long a cluster that did not answer is not asked for its service URL: each time takes seconds."""
_ENDED = "ended.json"
"""How a run of a command ended that has succeeded: what a later --resume of it says."""


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return reason_of(error)


def _line(result: object) -> str:
    """What a step did, in one line."""
    match result:
        case (_, Checked(findings=findings, warnings=warnings)):
            return count_line(findings) if findings or not warnings else counted(warnings, "warning")
        case Skipped(reason=text) | Done(said=text) | Unmet(said=text) | str(text):
            return text.strip().partition("\n")[0]
    return ""


def _following(terminal: Terminal, procedure: Procedure, run: Run, conf: JsonObject) -> NextRun | None:
    """The run that follows; None if none does."""
    following = runner.following(procedure, run, conf) if procedure.may_change(conf) else None
    if isinstance(following, Skipped):
        terminal.say(following.reason)
    return following if isinstance(following, NextRun) else None


def _named(procedure: Procedure, conf: JsonObject) -> dict[str, list[ClusterConnection]]:
    """Setting → its connections; in the environment the first of all has the credentials of the source.

    The others must not get them: they have those of the target, unless the procedure says that all have the same.
    """
    first, others = (Side.TARGET, Side.SOURCE) if procedure.exchanged(conf) else (Side.SOURCE, Side.TARGET)
    sides = repeat(Side.SOURCE) if procedure.same_credentials else chain([first], repeat(others))
    named = procedure.connections(conf)
    for step in procedure.each:
        named |= procedure.connections(conf, step=step)
    return {setting: [named_cluster(name, next(sides)) for name in names] for setting, names in named.items()}


def _say_how_it_ended(terminal: Terminal, procedure: Procedure, run: Run, conf: JsonObject) -> NoReturn:
    """Finish as the run did that has ended, and those that followed it; one of these that has work to do is named."""
    documents = list[JsonObject]()
    while True:
        ended = run.stored(_ENDED)
        if ended is None:
            # Of Airflow, or of an earlier release.
            raise PreconditionFailed(f"The run {run.id!r} has ended (succeeded): there is nothing to continue.")
        documents.append(ended["document"])
        terminal.note(f"The run {run.id!r} has ended (succeeded): there is nothing to continue.")
        state, follows = ExitState[ended["state"]], runner.following(procedure, run, conf)
        if not isinstance(follows, NextRun):
            break
        recorded = run.ledger.run(follows.id)
        if recorded is None or not recorded.over:
            command = command_line(procedure.word, "--resume", follows.id) if recorded else ""
            terminal.note(f"Continue the run that follows with: {command}" if command else follows.by_hand, command)
            state = ExitState.PARTLY
            break
        run, conf = Run.open(follows.id, this_process()), {**conf, **follows.settings}
    terminal.finish({"runs": documents} if procedure.lists_runs else documents[-1], state)


def _begun(
    terminal: Terminal, procedure: Procedure, conf: JsonObject, word: str, *, yes: bool
) -> tuple[Run, JsonObject]:
    if missing := [name for name in procedure.arguments if not conf[name]]:
        what = "its admin URL or its Airflow connection id." if missing[0] in procedure.clusters else "its id."
        raise UsageError(f"Name the {missing[0].replace('_', ' ')}: {what}")
    for name, setting in procedure.settings.items():
        if setting.schema.get("minItems") and not conf.get(name) and not conf.get(setting.unless):
            option = (setting.option or name).replace("_", "-")
            raise UsageError(f"Missing option --{option}: {setting.description}")
    with usage_errors():
        procedure.validate(conf)
    _named(procedure, conf)
    if procedure.may_change(conf):
        require_consent("clusters", yes=yes)
    run = Run.open(new_run_id(procedure.word), this_process())
    begin_run(terminal, run, procedure.recorded_as or procedure.name, conf, command=word)
    return run, conf


def _resumed(procedure: Procedure, run_id: str, conf: JsonObject, *, yes: bool) -> tuple[Run, JsonObject, bool]:
    if any(value != procedure.settings[name].empty for name, value in conf.items()):
        raise UsageError("--resume uses the recorded clusters and settings: give no other argument but --yes.")
    run, recorded, over = resumable_run(run_id, procedure.recorded_as or procedure.name, this_process())
    if procedure.may_change(recorded) and not over:
        require_consent("clusters", yes=yes)
    # An earlier release may not have had every setting.
    return run, {name: setting.empty for name, setting in procedure.settings.items()} | recorded, over
