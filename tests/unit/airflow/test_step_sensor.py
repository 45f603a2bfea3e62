"""How steps wait as tasks: in the triggerer or between two looks, and for the minutes of the run; no cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from pulsar_fleet.airflow.sensors import step as sensors
from pulsar_fleet.airflow.sensors.step import StepSensor
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.airflow.triggers.waiting import WaitTrigger
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures.procedure import NotYet, Procedure, Said, Session, Skipped, Step, Wait

ANSWERS: list[Said | Exception] = []
"""Of the step, one look after the other."""


async def arrive(session: Session) -> Said:
    """Say the next answer."""
    assert (session.conf["arrival_minutes"], session.batch) == (60, {})
    answer = ANSWERS.pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


ARRIVED = Step("wait", arrive, wait=Wait("arrival_minutes", lambda run: f"See {run.id}."))
IN_TRIGGERER = replace(ARRIVED, wait=Wait("arrival_minutes", lambda run: f"See {run.id}.", look=ARRIVED.work))
CONTEXT: Any = {"params": {"arrival_minutes": 60}, "dag_run": SimpleNamespace(dag_id="move", run_id="1")}
KINDS = {MomentTrigger: ARRIVED, WaitTrigger: IN_TRIGGERER}
kinds = pytest.mark.parametrize(("trigger", "step"), KINDS.items(), ids=[kind.__name__ for kind in KINDS])


@pytest.fixture(autouse=True)
def _no_answers(records: Path) -> Iterator[None]:
    ANSWERS.clear()
    yield
    assert ANSWERS == []


def waited(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(Run, "waited_seconds", lambda *_: seconds)


def sensor(step: Step = ARRIVED, **settings: Any) -> StepSensor:
    def conclude(said: Said, _: object) -> str:
        if isinstance(said, Skipped):
            raise AirflowSkipException(said.reason)
        return f"concluded: {said}"

    procedure = Procedure(name="move", summary="", clusters={}, own_settings={}, work=(step,))
    return StepSensor(task_id="wait", procedure=procedure, step=step, conclude=conclude, **settings)


@kinds
def test_a_step_defers_until_nothing_is_missing_also_past_a_restart(trigger: type[Any], step: Step) -> None:
    ANSWERS.extend([NotYet("4 are missing"), Unavailable("a broker restarts"), "all are there"])
    with pytest.raises(TaskDeferred) as first:
        sensor(step).execute(CONTEXT)
    assert isinstance(first.value.trigger, trigger)
    with pytest.raises(TaskDeferred):
        sensor(step).resume(CONTEXT, {"end": time.time() + 600})
    assert sensor(step).resume(CONTEXT, {"end": time.time() + 600}) == "concluded: all are there"


def test_the_triggerer_looks_by_the_name_of_the_function() -> None:
    ANSWERS.extend([NotYet("4 are missing"), NotYet("3 are missing"), "all are there"])
    with pytest.raises(TaskDeferred) as deferred:
        sensor(IN_TRIGGERER).execute(CONTEXT)
    _, stored = deferred.value.trigger.serialize()
    trigger = WaitTrigger(**{**stored, "poll_seconds": 0.0})

    async def fire() -> Any:
        return await anext(trigger.run())

    assert asyncio.run(fire()).payload["status"] == "done"


@pytest.mark.parametrize("deferrable", [True, False])
def test_after_the_minutes_of_the_run_it_says_what_is_missing(
    deferrable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited(monkeypatch, 3600)
    ANSWERS.extend([NotYet("4 are missing"), NotYet("4 are missing"), "all are there"])
    settings = {"deferrable": deferrable, "mode": "poke"}
    with pytest.raises(WaitTimedOut) as late:
        sensor(**settings).execute(CONTEXT)
    assert str(late.value) == "After 60 min: 4 are missing. See move/1."
    with pytest.raises(AirflowSkipException):
        sensor(soft_fail=True, **settings).execute(CONTEXT)
    # Cleared, it looks once more.
    assert sensor(**settings).execute(CONTEXT) == "concluded: all are there"


def test_the_trigger_ends_with_the_minutes_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "time", SimpleNamespace(time=lambda: 1000.0))
    for seconds, end in ((0, 1000 + 3600), (3590, 1010), (3599, 1005)):
        waited(monkeypatch, seconds)
        assert sensor().end_of_wait(CONTEXT, 9000.0) == end


def test_a_step_that_has_nothing_to_wait_for_is_skipped() -> None:
    ANSWERS.append(Skipped("No link ends."))
    with pytest.raises(AirflowSkipException, match="No link ends"):
        sensor().execute(CONTEXT)


AGAIN = replace(ARRIVED, wait=Wait("arrival_minutes", lambda run: f"See {run.id}.", again=True, missed="nobody came"))


def test_a_wait_that_is_tried_again_lasts_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waited(monkeypatch, 3600)
    ANSWERS.extend([NotYet("4 are missing")] * 3)
    before = time.time()
    with pytest.raises(TaskDeferred) as deferred:
        sensor(AGAIN).execute(CONTEXT)
    assert 3590 < deferred.value.trigger.end - before < 3610
    # After a look the task keeps its end.
    with pytest.raises(TaskDeferred) as later:
        sensor(AGAIN).resume(CONTEXT, {"end": before + 60})
    assert later.value.trigger.end == before + 60
    with pytest.raises(WaitTimedOut, match=r"^After 60 min nobody came: 4 are missing\. See move/1\.$"):
        sensor(AGAIN).resume(CONTEXT, {"end": before})


def test_a_step_says_when_to_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "time", SimpleNamespace(time=lambda: 1000.0))
    unlimited = replace(ARRIVED, wait=Wait("", poll_seconds=120.0, again=True))
    for seconds, moment in ((None, 1120.0), (60.0, 1060.0)):
        ANSWERS.append(NotYet("no window is open", seconds))
        with pytest.raises(TaskDeferred) as deferred:
            sensor(unlimited).execute(CONTEXT)
        assert deferred.value.trigger.moment == moment


def test_what_a_wait_keeps_is_of_one_run() -> None:
    runs: list[str] = []

    async def look(session: Session) -> Said:
        runs.append(session.kept.setdefault("run", session.run.id))
        return "all are there"

    waiting = sensor(replace(ARRIVED, work=look))
    for number in ("1", "2"):
        waiting.execute({**CONTEXT, "dag_run": SimpleNamespace(dag_id="move", run_id=number)})
    assert runs == ["move/1", "move/2"]
