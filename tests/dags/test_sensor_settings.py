"""Every sensor honours what Airflow promises of a sensor: mode, timeout, soft_fail, poke_interval, deferrable."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from tests.support.dag_runs import run_dag, states
from tests.support.full_estate import make_namespace

from pulsar_fleet.airflow import PulsarSubscriptionSensor
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.sensors.step import StepSensor
from pulsar_fleet.airflow.sensors.waiting import WaitingSensor
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures.procedure import NotYet, Procedure, Session, Step, Wait
from pulsar_fleet.procedures.replication import REPLICATION

pytestmark = [pytest.mark.migration, pytest.mark.usefixtures("play")]

Play = Callable[..., Any]
WAYS: dict[str, dict[str, Any]] = {
    "poke": {"deferrable": False, "mode": "poke"},
    "reschedule": {"deferrable": False, "mode": "reschedule"},
    "deferrable": {"deferrable": True},
}


async def never(_: Session) -> NotYet:
    """What does not come."""
    return NotYet("4 are missing")


WAITS = {
    "worker": Wait("", poll_seconds=5.0, again=True, missed="nobody is there"),
    "triggerer": Wait("", poll_seconds=5.0, look=never, again=True, missed="nobody is there"),
}


@pytest.fixture
async def wait(on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]) -> Play:
    """Runs a DAG with a sensor of this kind, which waits for what does not come; returns the run."""
    topic = TopicName(new_namespace(), "events")
    await make_namespace(on_blue, topic.namespace)
    await on_blue.create_topic(topic)

    def sensor(kind: str, **settings: Any) -> WaitingSensor:
        if kind == "cluster":
            name = {"topic": str(topic), "subscription": "none", "pulsar_conn_id": "pulsar_blue"}
            return PulsarSubscriptionSensor(task_id="wait", **name, **settings)
        step = Step("wait", never, wait=WAITS[kind])
        procedure = Procedure(name="wait", summary="", clusters={}, own_settings={}, work=(step,))
        return StepSensor(task_id="wait", procedure=procedure, step=step, conclude=lambda *_: "", **settings)

    def run(kind: str, **settings: Any) -> Any:
        with DAG(f"wait-{uuid.uuid4().hex}", schedule=None, default_args={**DEFAULT_ARGS, "retry_delay": 0}) as dag:
            sensor(kind, poke_interval=timedelta(seconds=5), **settings)
        return run_dag(dag)

    return run


def rescheduled(run: Any) -> int:
    """How often the sensor gave its worker slot back."""
    from airflow.models.taskreschedule import TaskReschedule
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    (instance,) = run.get_task_instances()
    with create_session() as session:
        return session.scalar(select(func.count()).where(TaskReschedule.ti_id == instance.id)) or 0


def reason(run: Any) -> str:
    """Why the sensor failed, as the report names it."""
    records = Run.open(f"{run.dag_id}/{run.run_id}")
    return str(records.stored("failures/wait.json"))


KINDS = {
    "cluster": r"After 6 s: \S+ has no subscription none",
    "worker": r"After 6 s nobody is there: 4 are missing",
    "triggerer": r"After 6 s nobody is there: 4 are missing",
}


def every(**short: tuple[str, ...]) -> Any:
    """Every kind in every mode; `short` has the modes of a kind that take no long test."""
    pairs = [(kind, way) for kind in KINDS for way in WAYS]
    marks = {pair: () if pair[1] in short.get(pair[0], ()) else pytest.mark.long for pair in pairs}
    return pytest.mark.parametrize(("kind", "way"), [pytest.param(*pair, marks=marks[pair]) for pair in pairs])


@every(cluster=("poke",), triggerer=("deferrable",), worker=("reschedule",))
def test_a_sensor_ends_at_its_timeout_in_every_mode_without_a_retry(wait: Play, kind: str, way: str) -> None:
    run = wait(kind, timeout=6, **WAYS[way])
    assert states(run) == {"wait": "failed"}
    assert re.match(KINDS[kind], reason(run))
    assert run.get_task_instances()[0].try_number == 1
    assert (run.end_date - run.start_date).total_seconds() >= 6
    assert (rescheduled(run) > 0) is (way == "reschedule")


@every(triggerer=("deferrable",), worker=("poke",))
def test_with_soft_fail_the_timeout_skips_in_every_mode(wait: Play, kind: str, way: str) -> None:
    assert states(wait(kind, timeout=1, soft_fail=True, **WAYS[way])) == {"wait": "skipped"}


def test_an_interval_that_is_too_short_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="set it to 5 or more"):
        PulsarSubscriptionSensor(task_id="wait", topic="t", subscription="s", poke_interval=timedelta(seconds=1))


def test_the_task_of_a_step_that_waits_takes_mode_interval_and_timeout() -> None:
    settings: dict[str, Any] = {"mode": "poke", "poke_interval": 7, "timeout": 70, "soft_fail": True}
    (step,) = (step for step in REPLICATION.each if step.wait)
    sensor = StepSensor(task_id="wait", procedure=REPLICATION, step=step, conclude=lambda *_: "", **settings)
    assert {name: getattr(sensor, name) for name in settings} == settings
