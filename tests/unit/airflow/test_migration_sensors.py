"""How the sensors of a migration end, and how long they wait; a hand-made clock, no cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from pulsar_fleet.airflow.sensors import migration as sensors
from pulsar_fleet.airflow.sensors import waiting
from pulsar_fleet.airflow.sensors.migration import ChangeWindowSensor, MigrationSensor, Milestone
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.migration.model import Moves

NOW = datetime(2026, 3, 2, 21, 0, tzinfo=UTC)
RUN = SimpleNamespace(dag_id="migrate_namespaces", run_id="1")
LATER = NOW.timestamp() + 60


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is `NOW`."""
    monkeypatch.setattr(sensors, "datetime", SimpleNamespace(now=lambda zone: NOW.astimezone(zone)))
    monkeypatch.setattr(waiting, "time", SimpleNamespace(time=NOW.timestamp, monotonic=lambda: 0.0))


@pytest.fixture
def moves(records: Path, monkeypatch: pytest.MonkeyPatch) -> JsonObject:
    """A migration without a namespace, between clusters at whose addresses nobody answers."""
    for name in ("BLUE", "GREEN"):
        document = {"conn_type": "pulsar", "host": "http://127.0.0.1:9"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(document))
    return Artefacts.open().write_json("run", "moves.json", Moves("blue", "green", ()).to_json()).to_json()


def drained(moves: JsonObject) -> MigrationSensor:
    return MigrationSensor(
        task_id="wait_drained", milestone=Milestone.DRAINED, blue="blue", green="green", moves=moves, timeout_minutes=90
    )


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("timeout", r"^After 90 min the namespaces are not drained: 4 left\. Clear this task to wait again"),
        ("error", r"^4 left$"),
    ],
    ids=["timeout", "error"],
)
def test_a_sensor_fails_with_what_its_trigger_says(status: str, sentence: str, moves: JsonObject) -> None:
    with pytest.raises(PreconditionFailed, match=sentence):
        drained(moves).resume({}, {"status": status, "message": "4 left", "end": LATER})


def milestone(monkeypatch: pytest.MonkeyPatch, *, reached: bool) -> None:
    """What the sensor's own poll finds."""

    async def monitor(*_: Any) -> tuple[bool, str]:
        return reached, "a line"

    monkeypatch.setattr(sensors, "monitor", monitor)


def test_a_sensor_ends_at_its_milestone(moves: JsonObject, monkeypatch: pytest.MonkeyPatch) -> None:
    milestone(monkeypatch, reached=True)
    assert drained(moves).execute({"dag_run": RUN}) == "a line"


def test_a_sensor_that_defers_again_keeps_its_end(moves: JsonObject, monkeypatch: pytest.MonkeyPatch) -> None:
    milestone(monkeypatch, reached=False)
    sensor, context, end = drained(moves), {"dag_run": RUN}, NOW.timestamp() + 90 * 60
    with pytest.raises(TaskDeferred) as first:
        sensor.execute(context)
    assert (first.value.method_name, first.value.trigger.end) == ("resume", end)
    with pytest.raises(TaskDeferred) as again:
        sensor.resume(context, {"status": "done", "message": "", "end": LATER})
    assert again.value.trigger.end == LATER


@pytest.fixture
def renewed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Renewals of the lease."""
    renewals: list[bool] = []

    async def keep_lease() -> None:
        renewals.append(True)

    monkeypatch.setattr(sensors, "procedure_of", lambda _: SimpleNamespace(keep_lease=keep_lease))
    return renewals


def wait_for(window: str, event: Any = None) -> str:
    """Let the sensor of this change window look once."""
    context: Any = {"params": {"change_windows": [window], "freeze_windows": []}}
    sensor = ChangeWindowSensor(task_id="wait_for_window")
    return str(sensor.resume(context, event) if event else sensor.execute(context))


@pytest.mark.parametrize("event", [None, {"end": LATER}], ids=["at first", "after a deferral"])
def test_inside_a_change_window_a_wave_goes_on(event: Any, renewed: list[bool]) -> None:
    assert wait_for("daily 21:00-22:00", event) == "This wave may be cut over now."
    assert renewed == []


@pytest.mark.parametrize(
    ("window", "moment"),
    [("daily 21:01-22:00", timedelta(minutes=1)), ("daily 23:00-24:00", timedelta(minutes=2))],
    ids=["opens soon", "opens after the lease"],
)
def test_outside_a_change_window_a_wave_defers_until_it_opens(
    window: str, moment: timedelta, renewed: list[bool]
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        wait_for(window)
    assert (deferred.value.trigger.moment, deferred.value.method_name) == ((NOW + moment).timestamp(), "resume")
    assert renewed == [True]


def test_a_wave_whose_change_window_never_opens_fails(renewed: list[bool]) -> None:
    with pytest.raises(PreconditionFailed, match="correct 'change_windows'"):
        wait_for("2026-01-01T00:00/2026-01-02T00:00")
