"""Triggers survive the way through Airflow's database; one looks until there is something to say."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from pulsar_fleet.airflow.conditions import BacklogCondition, PhaseCondition, arguments_of, open_condition
from pulsar_fleet.airflow.operators.messages import PulsarConsumeOperator
from pulsar_fleet.airflow.sensors.conditions import NamespacePhaseSensor
from pulsar_fleet.airflow.sensors.step import open_look
from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.airflow.triggers.waiting import Look, Status, WaitTrigger
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable

TOPIC = {"topic": "persistent://a/b/c", "subscription": "airflow"}
LINKS = {"work": "steps:wait", "connections": {"clusters": ["b"]}, "conf": {}, "run_id": "r", "batch": {}}
CONDITION = arguments_of(BacklogCondition(**TOPIC, at_most=3), "pulsar_blue")


@pytest.mark.parametrize(
    "trigger",
    [
        WaitTrigger(look=open_condition, arguments=CONDITION, poll_seconds=30),
        WaitTrigger(look=open_look, arguments=LINKS, poll_seconds=5, until=8.0, end=9.0),
        MomentTrigger(moment=8.0, end=9.0),
        PulsarMessageTrigger(**TOPIC, subscription_type="failover", max_messages=7, interval_seconds=0),
    ],
    ids=["condition", "step", "moment", "messages"],
)
def test_a_trigger_is_rebuilt_from_what_it_serialises(trigger: BaseTrigger) -> None:
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    rebuilt = getattr(import_module(module), name)(**arguments)
    assert rebuilt.serialize() == (path, arguments)


ANSWERS: list[Any] = []


async def open_answers(name: str) -> Look:
    """Looks that give the answers, one after the other."""
    if name == "nowhere":
        raise PreconditionFailed("there is no connection 'nowhere'")

    async def look() -> tuple[bool, str]:
        answer = ANSWERS.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer), f"a line of {answer}"

    return look


@pytest.mark.parametrize(
    ("answers", "name", "until", "status", "message"),
    [
        ((False, True), "blue", 60.0, "done", "a line of True"),
        ((Unavailable("a broker restarts"), True), "blue", None, "done", "a line of True"),
        ((PreconditionFailed("nothing can be read"),), "blue", 60.0, "error", "nothing can be read"),
        ((), "nowhere", 60.0, "error", "there is no connection 'nowhere'"),
        ((), "blue", -1.0, "timeout", "not read yet"),
    ],
    ids=["done", "no answer", "error", "no connection", "end"],
)
async def test_a_trigger_looks_until_there_is_something_to_say(
    answers: tuple[Any, ...], name: str, until: float | None, status: str, message: str
) -> None:
    ANSWERS[:] = answers
    ends = None if until is None else time.time() + until
    trigger = WaitTrigger(look=open_answers, arguments={"name": name}, poll_seconds=0, until=ends, end=9.0)
    async with asyncio.timeout(10):
        events = [event.payload async for event in trigger.run()]
    assert (events, ANSWERS) == ([{"status": status, "message": message, "end": 9.0}], [])


@pytest.mark.parametrize("status", [Status.ERROR, Status.DONE])
def test_a_task_that_consumes_takes_the_event_of_its_trigger(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = PulsarConsumeOperator(task_id="consume", **TOPIC, process=lambda batch: None)
    monkeypatch.setattr(operator, "_consume", lambda: {"messages": 2})
    event = {"status": status.value, "message": "the topic was deleted", "end": None}
    if status is Status.DONE:
        assert operator.resume({}, event) == {"messages": 2}
    else:
        with pytest.raises(PreconditionFailed, match="the topic was deleted"):
            operator.resume({}, event)


def test_the_phase_of_a_namespace_needs_no_connection(records: Path) -> None:
    condition = PhaseCondition(namespace="acme/orders", phase="cut_over")
    assert NamespacePhaseSensor(task_id="wait", **asdict(condition)).read({})[0] is False
    look = asyncio.run(open_condition(**arguments_of(condition, "nowhere")))
    assert asyncio.run(look())[0] is False
