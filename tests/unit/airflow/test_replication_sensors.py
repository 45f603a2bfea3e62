"""How steps and the sensor of replication wait: in the triggerer, and for the minutes of the run; no cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from pulsar_fleet.airflow.sensors import run_limit
from pulsar_fleet.airflow.sensors.replication import BacklogSentSensor
from pulsar_fleet.airflow.sensors.run_limit import RunLimitedSensor
from pulsar_fleet.airflow.sensors.step import StepSensor
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.airflow.triggers.waiting import WaitTrigger
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures.procedure import NotYet, Skipped, Step, Wait

LINKS = {"clusters": ["blue"], "receive_only": [], "leaving": ["green"], "drain_minutes": 60}
PARAMS = {**LINKS, "origin": "blue", "target": "green", "arrival_minutes": 60}
RUN = SimpleNamespace(dag_id="replicate_namespaces", run_id="1")


async def look(_: Any) -> str:
    """What the tests replace."""
    raise NotImplementedError


ARRIVED = Step("wait", look, wait=Wait("arrival_minutes", lambda run: f"See {run.id}."))
STEP: dict[str, Any] = {"step": ARRIVED, "look": look, "conclude": lambda said, _: str(said)}
KINDS = [(BacklogSentSensor, {"planned": {"ends": True}}), (StepSensor, STEP)]
kinds = pytest.mark.parametrize(("kind", "own"), KINDS, ids=lambda value: getattr(value, "__name__", ""))


@pytest.fixture
def figures(records: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | Exception]]:
    """What the reads of both sensors give, one after the other."""
    answers: list[str | Exception] = []

    async def missing(*_: Any) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    for kind, _ in KINDS:
        monkeypatch.setattr(kind, "missing", missing)
    return answers


def waited(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for kind, _ in KINDS:
        monkeypatch.setattr(kind, "waited_seconds", lambda *_: seconds)


def context() -> Any:
    return {"params": PARAMS, "dag_run": RUN}


@kinds
def test_a_sensor_defers_by_default_until_nothing_is_missing(
    kind: type[RunLimitedSensor], own: dict[str, Any], figures: list[Any]
) -> None:
    figures += ["4 are missing", Unavailable("a broker restarts"), ""]
    sensor = kind(task_id="wait", **own)
    with pytest.raises(TaskDeferred) as first:
        sensor.execute(context())
    assert isinstance(first.value.trigger, WaitTrigger | MomentTrigger)
    with pytest.raises(TaskDeferred):
        sensor.resume(context(), {"end": time.time() + 600})
    assert sensor.resume(context(), {"end": time.time() + 600}) == ""


@kinds
@pytest.mark.parametrize("deferrable", [True, False])
def test_after_the_minutes_of_the_run_it_fails_with_what_is_missing(
    kind: type[RunLimitedSensor],
    own: dict[str, Any],
    deferrable: bool,
    figures: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited(monkeypatch, 3600)
    figures += ["4 are missing"] * 2
    settings = {**own, "deferrable": deferrable, "mode": "poke"}
    with pytest.raises(WaitTimedOut, match=r"4 are missing") as caught:
        kind(task_id="wait", **settings).execute(context())
    assert "fter 60 min" in str(caught.value)
    with pytest.raises(AirflowSkipException):
        kind(task_id="wait", soft_fail=True, **settings).execute(context())


@kinds
def test_the_trigger_ends_with_the_minutes_and_not_at_once(
    kind: type[RunLimitedSensor], own: dict[str, Any], records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_limit, "time", SimpleNamespace(time=lambda: 1000.0))
    for seconds, end in ((0, 1000 + 3600), (3590, 1010), (3599, 1005)):
        waited(monkeypatch, seconds)
        assert kind(task_id="wait", **own).end_of_wait(context(), 9000.0) == end


def test_no_ending_link_skips_the_sensor(records: Path) -> None:
    sensor = BacklogSentSensor(task_id="wait", planned={"ends": False})
    with pytest.raises(AirflowSkipException, match="No link ends"):
        sensor.execute(context())


def test_a_step_that_waited_too_long_says_what_to_do_and_looks_once_more(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [NotYet("4 are missing"), "all are there"]
    concluded: list[object] = []

    async def arrive(batch: object) -> Any:
        assert batch == {}
        return answers.pop(0)

    monkeypatch.setattr(Run, "waited_seconds", lambda *_: 3600.0)
    own = {"step": ARRIVED, "look": arrive, "conclude": lambda said, _: concluded.append(said) or ""}
    with pytest.raises(WaitTimedOut) as late:
        StepSensor(task_id="wait", **own).execute(context())
    assert str(late.value) == "After 60 min: 4 are missing. See replicate_namespaces/1."
    StepSensor(task_id="wait", **own).execute(context())
    assert concluded == ["all are there"]


def test_a_step_that_is_skipped_while_it_waits_ends_the_wait(records: Path) -> None:
    async def nothing(_: object) -> Skipped:
        return Skipped("Nobody is missing.")

    def conclude(said: Skipped, _: object) -> str:
        raise AirflowSkipException(said.reason)

    with pytest.raises(AirflowSkipException, match="Nobody is missing"):
        StepSensor(task_id="wait", step=ARRIVED, look=nothing, conclude=conclude).execute(context())
