"""What a runner stores of steps and reports, without a cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import typer

from pulsar_fleet.cli import settings
from pulsar_fleet.cli import terminal as terminals
from pulsar_fleet.cli.procedure import _named, command_of
from pulsar_fleet.cli.terminal import Terminal
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, PlanOutdated, PreconditionFailed, Unavailable
from pulsar_fleet.ledger.approval import APPROVED, store_approval
from pulsar_fleet.ledger.rows import Intent, NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.preflight.findings import Finding, Planned, Severity
from pulsar_fleet.procedures import read_only, replication, runner
from pulsar_fleet.procedures.procedure import (
    Batches,
    Checked,
    Done,
    Ended,
    Ending,
    NotYet,
    Permission,
    Procedure,
    Question,
    Session,
    Skipped,
    Step,
    Unmet,
    Wait,
)
from pulsar_fleet.report.failure import failed_report
from pulsar_fleet.report.page import store_report
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import allow_changes


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The notes of commands, on one terminal that is closed at the end."""
    terminal, notes = Terminal(as_json=False), list[str]()
    monkeypatch.setattr(terminal, "note", lambda text, *_, **__: notes.append(text))
    monkeypatch.setattr(settings, "Terminal", lambda as_json: terminal)
    yield notes
    terminal._stdout.close()


@pytest.fixture
def session(records: object) -> Session:
    return Session({}, Run.open("unload_namespaces/1"), {})


def procedure(*steps: Step) -> Procedure:
    async def check(_: Session) -> Checked:
        return Checked(headline="1 namespace is read.")

    return Procedure(name="unload_namespaces", summary="", clusters={}, own_settings={}, check=check, work=tuple(steps))


def saying(text: str) -> Step:
    async def work(_: Session) -> str:
        return text

    return Step("unload", work)


def test_a_procedure_without_steps_reports_its_check(session: Session) -> None:
    examined = procedure()
    asyncio.run(runner.check(examined, session))
    assert runner.end(examined, session.run, {}, {}).report.headline == "1 namespace is read."


def test_a_step_that_says_nothing_is_done(session: Session) -> None:
    quiet = procedure(saying(""))
    asyncio.run(runner.check(quiet, session))
    assert runner.said_by(session, "unload") is None
    asyncio.run(runner.run_step(quiet.work[0], session))
    assert runner.said_by(session, "unload") == ""
    report = runner.end(quiet, session.run, {}, {}).report
    assert report.headline == "1 namespace is read."
    assert "| unload | done |" in report.markdown()


def batched(done: list[str], failing: set[str]) -> Procedure:
    """Two batches of two steps each; a step that is named in `failing` fails."""

    async def parts(_: Session) -> list[dict[str, str]]:
        return [{"folder": "parts/1"}, {"folder": "parts/2"}]

    def step(name: str, *, beside: bool = False) -> Step:
        async def work(session: Session) -> str | Skipped | Unmet:
            where = f"{session.batch['folder']}/{name}"
            if where in failing:
                raise Unavailable(f"{where} has no answer.")
            done.append(where)
            return Unmet("they differ") if where == "parts/1/compare" else "" if name == "freeze" else Skipped("off")

        return Step(name, work, reads=True, beside=beside)

    def end(run: Run, _: object, failed: Mapping[str, str]) -> Ending:
        report = failed_report(failed, "It stopped.")
        return Ending(report=report, text="", document={"failed": list(failed)}, ended=Ended.DIFFERENT)

    return Procedure(
        name="compare_parts",
        summary="",
        clusters={},
        own_settings={},
        changes=None,
        work=Batches("each", parts, (step("freeze"), step("compare", beside=True))),
        end=end,
    )


def test_a_run_goes_on_in_the_batch_in_which_it_stopped(records: object, said: list[str]) -> None:
    done: list[str] = []
    failing = {"parts/2/freeze"}
    command = command_of(batched(done, failing))
    with pytest.raises(typer.Exit) as stopped:
        command(as_json=False, resume=None)
    # A step beside one that failed is done, as in Airflow.
    assert (stopped.value.exit_code, done) == (1, ["parts/1/freeze", "parts/1/compare", "parts/2/compare"])
    (run_id,) = re.findall(r"--resume (cli/compare-parts-\S+)", said[0])
    failing.clear()
    with pytest.raises(typer.Exit) as ended:
        command(as_json=False, resume=run_id)
    assert (ended.value.exit_code, done[3:]) == (3, ["parts/2/freeze", "parts/2/compare"])
    with pytest.raises(typer.Exit) as again:
        command(as_json=False, resume=run_id)
    # It says how the run ended, and does nothing.
    assert (again.value.exit_code, len(done)) == (3, 5)


def test_a_run_goes_on_with_the_batches_that_it_began_with(records: object, said: list[str]) -> None:
    done: list[str] = []
    failing = {"parts/2/freeze"}
    begun = batched(done, failing)
    with pytest.raises(typer.Exit):
        command_of(begun)(as_json=False, resume=None)
    (run_id,) = re.findall(r"--resume (cli/compare-parts-\S+)", said[0])

    async def others(_: Session) -> list[dict[str, str]]:
        return [{"folder": "parts/1"}]

    failing.clear()
    assert isinstance(begun.work, Batches)
    with pytest.raises(typer.Exit):
        command_of(replace(begun, work=replace(begun.work, of=others)))(as_json=False, resume=run_id)
    assert done[3:] == ["parts/2/freeze", "parts/2/compare"]


def test_a_person_is_asked_before_a_step_and_for_each_permission(
    records: object, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    done: list[str] = []

    async def write(session: Session) -> str:
        done.extend(session.conf["allow_changes"])
        return "written"

    asked = Question("Write these changes?", (Permission("one", "one is deleted", "Delete 1?"),))
    asking = replace(
        batched([], set()),
        own_settings={"allow_changes": allow_changes()},
        work=(Step("write", write, asks=lambda _: asked),),
        changes=lambda _: True,
    )
    monkeypatch.setattr(terminals, "is_interactive", lambda: True)
    for answers, state, wrote in (([False], 4, []), ([True, False], 3, []), ([True, True], 3, ["one"])):
        left = [*answers]
        monkeypatch.setattr(Terminal, "confirm", lambda *_, left=left: left.pop(0))
        with pytest.raises(typer.Exit) as ended:
            command_of(asking)(as_json=False, resume=None, yes=False, allow_changes=None)
        assert (ended.value.exit_code, done, left) == (state, wrote, [])


def test_a_step_that_fails_says_why_and_what_stays(
    records: object, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    shown: list[str] = []
    failing = {""}

    async def look(_: Session) -> str:
        return "2 fields differ"

    async def write(_: Session) -> str:
        if failing:
            raise Unavailable("green has no answer.")
        return "written"

    procedure = replace(
        batched([], set()),
        work=(Step("look", look, reads=True, shows=True), Step("write", write, asks=lambda _: Question("Write?"))),
        changes=lambda _: True,
    )
    monkeypatch.setattr(terminals, "is_interactive", lambda: True)
    monkeypatch.setattr(Terminal, "show", lambda _, text, *__: shown.append(text))
    monkeypatch.setattr(Terminal, "confirm", lambda *_: True)
    with pytest.raises(typer.Exit) as failed:
        command_of(procedure)(as_json=False, resume=None, yes=False)
    assert (failed.value.exit_code, "write: green has no answer." in said, shown) == (5, True, ["2 fields differ"])
    (run_id,) = {*re.findall(r"--resume (cli/compare-parts-[\w-]+)", said[-1])}
    monkeypatch.setattr(Terminal, "confirm", lambda *_: False)
    with pytest.raises(typer.Exit) as rejected:
        command_of(procedure)(as_json=False, resume=run_id, yes=False)
    assert (rejected.value.exit_code, shown) == (5, ["2 fields differ"] * 2)
    assert "write: The write was not approved. What an earlier attempt has changed stays." in said
    failing.clear()
    monkeypatch.setattr(terminals, "is_interactive", lambda: False)
    with pytest.raises(typer.Exit) as unasked:
        command_of(procedure)(as_json=False, resume=run_id, yes=False)
    assert unasked.value.exit_code == 4
    with pytest.raises(typer.Exit) as done:
        command_of(procedure)(as_json=False, resume=run_id, yes=True)
    assert done.value.exit_code == 3


def waiting(answers: list[str | NotYet | Exception]) -> Procedure:
    """One step that answers one after the other, without a pause."""

    async def arrive(_: Session) -> str | NotYet:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    limit = setting(1, type="integer", title="", description="")
    wait = Wait("minutes", lambda run: f"See {run.id}.", poll_seconds=0.0)
    return replace(
        batched([], set()), own_settings={"minutes": limit}, work=(Step("arrive", arrive, reads=True, wait=wait),)
    )


def test_a_step_waits_on_the_terminal_also_while_a_cluster_restarts(records: object, said: list[str]) -> None:
    answers: list[str | NotYet | Exception] = [NotYet("2 are missing"), Unavailable("green restarts."), "all are there"]
    with pytest.raises(typer.Exit) as ended:
        command_of(waiting(answers))(as_json=False, resume=None, minutes=1)
    assert (ended.value.exit_code, answers) == (3, [])


def test_a_wait_ends_with_its_minutes_and_goes_on_by_resume(
    records: object, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str | NotYet | Exception] = [NotYet("2 are missing")]
    monkeypatch.setattr(Run, "waited_seconds", lambda *_: 60.0)
    with pytest.raises(typer.Exit) as late:
        command_of(waiting(answers))(as_json=False, resume=None, minutes=1)
    (run_id,) = {*re.findall(r"cli/compare-parts-[\w-]+", "\n".join(said))}
    assert (late.value.exit_code, f"After 60 s: 2 are missing. See {run_id}." in said) == (4, True), said
    answers.append("all are there")
    with pytest.raises(typer.Exit) as ended:
        command_of(waiting(answers))(as_json=False, resume=run_id, minutes=1)
    assert (ended.value.exit_code, answers) == (3, [])


def test_a_step_without_a_limit_must_not_wait(session: Session) -> None:
    async def arrive(_: Session) -> NotYet:
        return NotYet("2 are missing")

    with pytest.raises(TypeError, match="arrive returned NotYet and has no Wait"):
        asyncio.run(runner.wait_for(Step("arrive", arrive), session))


def test_a_blocker_refuses_a_run_and_a_dry_run_before_any_step(records: object, said: list[str]) -> None:
    missing = Finding(
        id="namespace-missing",
        severity=Severity.BLOCKER,
        resource="acme/orders",
        evidence="it does not exist",
        consequence="There is nothing to unload.",
        remedy="Correct the name.",
    )

    async def check(_: Session) -> Checked:
        return Checked(headline="1 namespace is unloaded.", changes=("unload acme/orders",), findings=(missing,))

    async def never(_: Session) -> str:
        raise AssertionError

    refused = replace(procedure(Step("unload", never)), check=check)
    for dry_run in (False, True):
        with pytest.raises(typer.Exit) as ended:
            command_of(refused)(as_json=False, resume=None, yes=not dry_run, dry_run=dry_run)
        assert (ended.value.exit_code, "it does not exist" in said[-1]) == (4, True), said


def test_steps_before_the_check_are_done_again_until_the_plan_is_approved(
    records: object, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    failing = {"unload"}

    def doing(name: str) -> Step:
        async def work(_: Session) -> str:
            done.append(name)
            if name in failing:
                failing.remove(name)
                raise Unavailable("green has no answer.")
            return name

        return Step(name, work, reads=name == "look")

    async def require(_: Session) -> None:
        done.append("require")

    async def check(_: Session) -> Checked:
        done.append("check")
        return Checked(headline="1 namespace is unloaded.", changes=("unload acme/orders",))

    procedure_ = replace(
        procedure(doing("unload")),
        require=require,
        looks=(doing("look"),),
        check=check,
        checks="plan",
    )
    assert procedure_.steps() == ("check", "look", "plan", "approve_plan", "unload", "write_report")
    monkeypatch.setattr(terminals, "is_interactive", lambda: True)
    monkeypatch.setattr(Terminal, "confirm", lambda *_: False)
    with pytest.raises(typer.Exit) as rejected:
        command_of(procedure_)(as_json=False, resume=None, yes=False, dry_run=False)
    (run_id,) = {*re.findall(r"cli/unload-namespaces-[\w-]+", said[0])}
    assert (rejected.value.exit_code, done) == (4, ["require", "look", "check"])
    with pytest.raises(typer.Exit) as failed:
        command_of(procedure_)(as_json=False, resume=run_id, yes=True, dry_run=False)
    assert (failed.value.exit_code, done[3:]) == (5, ["require", "look", "check", "unload"])
    with pytest.raises(typer.Exit) as ended:
        command_of(procedure_)(as_json=False, resume=run_id, yes=True, dry_run=False)
    assert (ended.value.exit_code, done[7:]) == (0, ["unload"])


def test_resume_takes_no_other_setting(records: object, said: list[str]) -> None:
    with pytest.raises(typer.Exit) as refused:
        command_of(waiting([]))(as_json=False, resume="cli/compare-parts-1", minutes=2)
    assert (refused.value.exit_code, "give no other argument but --yes" in said[-1]) == (2, True)


def test_what_a_plan_refuses_by_itself_is_refused_before_anybody_is_asked(records: object, said: list[str]) -> None:
    async def check(_: Session) -> Checked:
        return Checked(headline="1 change.", changes=("delete",), refusal="Every change needs permission.")

    refusing = replace(procedure(saying("")), check=check)
    for dry_run, state in ((False, 4), (True, 0)):
        with pytest.raises(typer.Exit) as ended:
            command_of(refusing)(as_json=False, resume=None, yes=not dry_run, dry_run=dry_run)
        assert ended.value.exit_code == state
    assert "Every change needs permission." in said


def test_an_approval_of_an_earlier_plan_approves_no_later_one(
    records: object, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: Session) -> str:
        raise AssertionError

    async def check(_: Session) -> Checked:
        return Checked(headline="1 namespace is unloaded.", changes=("unload acme/orders",))

    unasked = replace(procedure(Step("unload", never)), check=check)
    run = Run.open("cli/unload-namespaces-earlier")
    run.ledger.start_run(run.id, "unload_namespaces", {"dry_run": False})
    # As an earlier release leaves it: approved, and its plan stored elsewhere.
    store_approval(run, "plan 1f", APPROVED, by="me")
    monkeypatch.setattr(terminals, "is_interactive", lambda: True)
    monkeypatch.setattr(Terminal, "confirm", lambda *_: False)
    for _ in range(2):
        with pytest.raises(typer.Exit) as rejected:
            command_of(unasked)(as_json=False, resume=run.id, yes=False, dry_run=False)
        assert rejected.value.exit_code == 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Document):
    number: int


INTENT = Intent(change_id="1f", cluster="green", kind="namespace", name="a/b", field="", before=None, after={})


def recording(
    run: Run, stage: str = "contents/green", intended: Sequence[Intent] = (INTENT,), outcome: str = ""
) -> None:
    """As a step writes to a cluster, in a run of its own; with an outcome a change is recorded too."""
    below = f"{run.id}/{stage}"
    run.ledger.start_run(below, "unload_namespaces", {"target": "green"})
    change = NewChange(
        change_id="1f",
        cluster="green",
        resource="a/b",
        action="create",
        hazard="none",
        before=None,
        after={},
        outcome=outcome,
    )
    run.ledger.record(below, new_intents=intended, new_changes=[change] if outcome else [])


def test_only_intended_writes_are_undone_and_only_sent_ones_changed(session: Session) -> None:
    run = session.run
    recording(run, "refused", (), "refused")
    assert (runner.may_have_changed(run), runner.undo_commands(run, {})) == (False, ())
    recording(run, "links", (), "applied")
    assert (runner.may_have_changed(run), runner.undo_commands(run, {})) == (True, ())
    recording(run, "one")
    recording(run, "two")
    commands = tuple(f"pulsar-fleet undo {run.id}/{name}" for name in ("two", "one"))
    assert runner.undo_commands(run, {}) == commands
    run.ledger.finish_run(f"{run.id}/two", "undone")
    assert runner.undo_commands(run, {}) == commands[1:]


def test_lists_are_undone_before_what_they_replicate(session: Session) -> None:
    # As a run that has planned twice: the contents of a cluster are newer than a list.
    for stage in ("contents/blue", "permissions", "starts/blue", "ends/blue", "contents/green"):
        recording(session.run, stage)
    order = [line.removeprefix(f"pulsar-fleet undo {session.run.id}/") for line in replication.undo(session.run, {})]
    assert order == ["ends/blue", "starts/blue", "permissions", "contents/green", "contents/blue"]
    for other, undone in (("green", 5), ("", 0)):
        assert len(read_only.undo(session.run, {"other_cluster": other})) == undone


@pytest.mark.parametrize(
    ("records_", "writes", "error", "state", "notes"),
    [
        (True, False, PreconditionFailed("Nobody may."), 4, []),
        (False, False, PreconditionFailed("A guard refuses the second call."), 5, ["Continue with: "]),
        (True, False, Unavailable("green has no answer."), 5, ["Continue with: "]),
        (True, True, PreconditionFailed("Nobody may."), 5, ["Continue with: ", "Undo it with: "]),
        (True, True, PlanOutdated("A list has changed."), 5, ["Start a new run: ", "Undo it with: "]),
    ],
)
def test_a_refusal_before_the_first_write_has_changed_nothing(
    records_: bool, writes: bool, error: FleetError, state: int, notes: list[str], records: object, said: list[str]
) -> None:
    async def refusing(session: Session) -> str:
        if writes:
            recording(session.run)
        raise error

    async def check(_: Session) -> Checked:
        return Checked(headline="1 namespace is unloaded.", changes=("unload acme/orders",))

    with pytest.raises(typer.Exit) as refused:
        command_of(replace(procedure(Step("unload", refusing)), check=check, records=records_))(
            as_json=False, resume=None, yes=True, dry_run=False
        )
    assert refused.value.exit_code == state
    advice = [note for note in said if re.match(r"Continue|Undo|then with|Start a new", note)]
    assert [note.startswith(start) for note, start in zip(advice, notes, strict=True)] == [True] * len(notes), said


def test_a_run_that_an_earlier_release_has_planned_plans_again(session: Session) -> None:
    run, examined = session.run, replace(procedure(saying("done")), checks="plan_changes")
    # As an earlier release leaves it: the plan under another name, and a change.
    recording(run)
    run.artefacts.write_json(run.id, "planned.json", {"headline": "1 namespace."})
    with pytest.raises(PreconditionFailed, match=r"Clear its task 'plan_changes'"):
        runner.require_planned(examined, run)
    report = runner.end(examined, run, {}, {"unload": "It has no plan of this release."}).report.markdown()
    assert "nothing has been changed" not in report
    assert f"pulsar-fleet undo {run.id}/contents/green" in report
    asyncio.run(runner.check(examined, session))
    # A task that a person marks as successful is no approval.
    with pytest.raises(PreconditionFailed, match="Nobody has approved this run: its task 'approve_plan' was marked"):
        runner.require_planned(examined, run)
    store_approval(run, "plan", "Reject", by="anna")
    with pytest.raises(PreconditionFailed, match="Nobody has approved this run"):
        runner.require_planned(examined, run)
    store_approval(run, "plan", "Approve", by="anna")
    runner.require_planned(examined, run)


def test_the_result_of_an_earlier_attempt_is_none_of_a_later_one(session: Session) -> None:
    answers: list[Done | Exception] = [Done("2 links", Number(number=2)), Unavailable("green has no answer.")]

    async def confirm(_: Session) -> Done:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    run, examined = session.run, procedure(Step("confirm", confirm))
    asyncio.run(runner.check(examined, session))
    asyncio.run(runner.run_step(examined.work[0], session))
    assert runner.results_of(run, ["confirm", "end"], Number) == {"confirm": Number(number=2)}
    with pytest.raises(Unavailable):
        asyncio.run(runner.run_step(examined.work[0], session))
    assert (runner.result_of(run, "confirm", Number), runner.said_by(session, "confirm")) == (None, None)
    answers.append(Done("3 links", Number(number=3)))
    asyncio.run(runner.run_step(examined.work[0], session))
    asyncio.run(runner.check(examined, session))
    assert runner.result_of(run, "confirm", Number) is None


def test_the_steps_read_the_plan_with_its_findings(session: Session) -> None:
    async def check(_: Session) -> Checked:
        return Checked(headline="3 namespaces.", changes=("one",), plan=Number(number=3), text="**Three**")

    asyncio.run(runner.check(replace(procedure(), check=check), session))
    assert runner.read_planned(session.run, Number) == Planned(
        plan=Number(number=3), findings=(), headline="3 namespaces.", text="**Three**"
    )


def test_a_cluster_that_answers_later_is_asked_again(
    records: object, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    answers = [None, "pulsar://a:2", "pulsar://never:1"]

    async def reach_all(sides: list[ClusterConnection]) -> list[ClusterConnection]:
        return [replace(side, service_url=answers.pop(0)) for side in sides]

    async def look(session: Session) -> str:
        asked.append(session.connections["clusters"][0].service_url)
        return ""

    monkeypatch.setattr("pulsar_fleet.cli.procedure.reach_all", reach_all)
    steps = tuple(Step(name, look, reads=True) for name in ("one", "two", "three"))
    many = replace(
        batched([], set()),
        clusters={"clusters": ""},
        own_settings={"clusters": setting([], type="array", items={"type": "string"}, title="", description="")},
        work=steps,
    )
    with pytest.raises(typer.Exit):
        command_of(many)(as_json=False, resume=None, clusters=["http://a:1"])
    assert asked == [None, "pulsar://a:2", "pulsar://a:2"]


@pytest.mark.parametrize(("same", "sides"), [(False, ["one", "two", "two"]), (True, ["one", "one", "one"])])
def test_the_credentials_of_the_source_go_to_the_first_cluster_only(
    same: bool, sides: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for side, token in (("SOURCE", "one"), ("TARGET", "two")):
        (tmp_path / token).write_text(token)
        monkeypatch.setenv(f"PULSAR_FLEET_{side}_TOKEN_FILE", str(tmp_path / token))
    many = replace(procedure(), clusters={"clusters": "", "more": ""}, own_settings={}, same_credentials=same)
    conf = {"clusters": ["http://a:1", "http://b:1"], "more": "http://c:1"}
    named = [one for connections in _named(many, conf).values() for one in connections]
    assert [str(one.token_file).rpartition("/")[2] for one in named] == sides


def restoring(done: list[str], *steps: Step, require: Callable[[Session], Awaitable[None]] | None = None) -> Procedure:
    """A procedure that restores at the end what its steps have changed."""

    async def restore(_: Session) -> str:
        done.append("restore")
        return "1 setting"

    def end(_: Run, __: object, failed: Mapping[str, str]) -> Ending:
        return Ending(report=failed_report(failed, "It stopped."), text="", document={})

    always = Step("restore", restore, reached=lambda _: False, finish="It is restored first.")
    changing = replace(procedure(*steps), check=None, changes=lambda _: True)
    return replace(changing, require=require, always=always, end=end)


def test_what_ctrl_c_lets_finish_is_followed_by_the_restoration_only(
    records: object, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def step(name: str, *, interrupted: bool) -> Step:
        async def work(session: Session) -> str:
            if interrupted and name not in done:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.02)
                assert session.stopping()
            done.append(name)
            return name

        return Step(name, work, finish="The move is finished first.")

    moving = restoring(done, step("move", interrupted=True), step("after", interrupted=False))
    with pytest.raises(typer.Exit) as stopped:
        command_of(moving)(as_json=False, resume=None, yes=True)
    assert (stopped.value.exit_code, done) == (5, ["move", "restore"])
    assert "The move is finished first. Press Ctrl-C again to stop at once." in said
    (run_id,) = re.findall(r"--resume (cli/unload-namespaces-\S+)", said[0])
    with pytest.raises(typer.Exit) as resumed:
        command_of(moving)(as_json=False, resume=run_id, yes=True)
    assert (resumed.value.exit_code, done[2:]) == (0, ["after", "restore"])


def test_no_second_ctrl_c_leaves_out_the_restoration_or_the_report(
    records: object, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    may_have_changed, ending = runner.may_have_changed, runner.end

    async def stopped(_: Session) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(1)
        return ""

    def between(run: Run) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return may_have_changed(run)

    def report(*arguments: object) -> Ending:
        os.kill(os.getpid(), signal.SIGINT)
        done.append("report")
        return ending(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "may_have_changed", between)
    monkeypatch.setattr(runner, "end", report)
    with pytest.raises(typer.Exit) as exited:
        command_of(restoring(done, saying("done"), Step("move", stopped)))(as_json=False, resume=None, yes=True)
    assert (exited.value.exit_code, done) == (5, ["restore", "report"])
    (run_id,) = re.findall(r"--resume (cli/unload-namespaces-\S+)", said[0])
    recorded = Run.open(run_id).ledger.run(run_id)
    assert recorded is not None
    assert recorded.state == "failed"


def test_a_step_at_the_end_follows_every_failure_after_a_change(records: object, said: list[str]) -> None:
    done: list[str] = []

    async def failing(_: Session) -> str:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        command_of(restoring(done, saying("done"), Step("fail", failing)))(as_json=False, resume=None, yes=True)
    assert done == ["restore"]
    (run_id,) = re.findall(r"--resume (cli/unload-namespaces-\S+)", said[0])
    recorded = Run.open(run_id).ledger.run(run_id)
    assert recorded is not None
    assert recorded.state == "failed"


def test_a_run_that_is_refused_for_its_clusters_restores_nothing_there(records: object, said: list[str]) -> None:
    done: list[str] = []
    others = [False]

    async def require(_: Session) -> None:
        if others[0]:
            raise PreconditionFailed("The settings lead to another cluster.")

    async def stopped(_: Session) -> str:
        raise Unavailable("blue has no answer")

    moving = replace(restoring(done, Step("move", stopped), require=require), begun=lambda _: True)
    with pytest.raises(typer.Exit):
        command_of(moving)(as_json=False, resume=None, yes=True)
    assert done == ["restore"]
    (run_id,) = re.findall(r"--resume (cli/unload-namespaces-\S+)", said[0])
    others[0] = True
    before = Run.open(run_id).ledger.run(run_id)
    with pytest.raises(typer.Exit) as refused:
        command_of(moving)(as_json=False, resume=run_id, yes=True)
    assert (refused.value.exit_code, done) == (4, ["restore"])
    # Another process may execute it.
    assert Run.open(run_id).ledger.run(run_id) == before


def test_a_page_that_the_procedure_has_stored_is_kept(session: Session) -> None:
    def end(run: Run, _: object, failed: Mapping[str, str]) -> Ending:
        report = failed_report(failed, "It stopped.")
        store_report(run, report, picture=b"<svg/>")
        return Ending(report=report, text="", document={}, has_page=True)

    runner.end(replace(procedure(), check=None, end=end), session.run, {}, {"move": "blue has no answer"})
    stored = session.run.artefacts.find(session.run.id, "report.html")
    assert stored is not None
    assert b"<svg" in session.run.artefacts.read(stored)
