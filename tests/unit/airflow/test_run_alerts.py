"""The alerts of runs come from one environment variable, and a mistake in it says what to write."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.notifications.pulsar import PulsarNotifier
from pulsar_fleet.airflow.run import record_end
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.settings.alerts import VARIABLE

NOTIFIER = f"{PulsarNotifier.__module__}.{PulsarNotifier.__name__}"
ARGUMENTS = {"topic": "persistent://ops/fleet/alerts", "pulsar_conn_id": "pulsar_ops"}


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda **value: monkeypatch.setenv(VARIABLE, json.dumps(value))


def test_without_the_variable_a_dag_has_no_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert run_alerts("migrate_namespaces") == {"on_failure_callback": [record_end]}


def test_a_run_that_airflow_has_ended_is_recorded_as_failed(records: Path) -> None:
    (record,) = run_alerts("watch_overrides")["on_failure_callback"]
    for name, state in (("late", "running"), ("done", "succeeded")):
        run = Run.open(f"watch_overrides/{name}")
        run.ledger.start_run(run.id, "watch_overrides", {})
        if state != "running":
            run.ledger.finish_run(run.id, state)
        record({"dag": SimpleNamespace(dag_id="watch_overrides"), "run_id": name, "reason": "timed_out"})
    states = {row.run_id.partition("/")[2]: row.state for row in Run.open("any").ledger.newest_runs(9)}
    assert states == {"late": "failed", "done": "succeeded"}


def test_a_notifier_gets_its_arguments(configure: Any) -> None:
    configure(callback=NOTIFIER, arguments=ARGUMENTS)
    given = run_alerts("migrate_namespaces")
    _, notifier = given.pop("on_failure_callback")
    assert (type(notifier), notifier.topic, notifier.pulsar_conn_id, given) == (
        PulsarNotifier,
        ARGUMENTS["topic"],
        "pulsar_ops",
        {},
    )


def test_only_the_named_dag_has_a_deadline(configure: Any) -> None:
    configure(callback=NOTIFIER, arguments=ARGUMENTS, deadlines={"migrate_namespaces": 90})
    alert = run_alerts("migrate_namespaces")["deadline"]
    assert (alert.interval, alert.callback.path) == (timedelta(minutes=90), NOTIFIER)
    assert "deadline" not in run_alerts("verify_clusters")


def test_the_notifier_names_the_run_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[Any] = []

    async def note(connection: Any, topic: str, messages: Any) -> None:
        published.extend(messages)

    async def connect(conn_id: str) -> None: ...

    monkeypatch.setattr("pulsar_fleet.messages.clients.publish.publish", note)
    monkeypatch.setattr("pulsar_fleet.airflow.hooks.pulsar.aread_connection", connect)
    deadline = {"id": "7", "deadline_time": datetime(2026, 11, 28, 8, tzinfo=UTC)}
    # What Airflow 3.3.2 gives to the callback of a deadline: the run as its API answers it, and no task instance.
    run = {"dag_run_id": "scheduled__1", "dag_id": "migrate_namespaces", "state": "running"}

    async def notify() -> None:
        await PulsarNotifier(
            topic="persistent://ops/fleet/{{ dag_run.dag_id }}",
            text="{{ dag_run.dag_id }} is late",
            context={"dag_run": run, "deadline": deadline},
        )

    asyncio.run(notify())
    (message,) = published
    assert json.loads(message.content) == {
        "dag_id": "migrate_namespaces",
        "run_id": "scheduled__1",
        "task_id": None,
        "state": "running",
        "text": "migrate_namespaces is late",
    }
    assert message.key == "migrate_namespaces"


def test_a_function_gets_the_context_and_its_arguments(configure: Any) -> None:
    configure(callback=f"{__name__}.page", arguments={"team": "storage"})
    assert run_alerts("x")["on_failure_callback"][1]({"run_id": "1"}) == ("storage", {"run_id": "1"})


def page(context: dict[str, str], team: str) -> tuple[str, dict[str, str]]:
    return team, context


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"callbak": NOTIFIER}, "did you mean 'callback'"),
        ({"arguments": {}}, "names no callback"),
        ({"callback": "page"}, "names no callback"),
        ({"callback": "nowhere.page"}, "cannot be imported: No module named"),
        ({"callback": f"{NOTIFIER}s"}, "cannot be imported"),
        ({"callback": NOTIFIER, "arguments": {"topics": "x"}}, "other arguments than"),
        ({"callback": NOTIFIER, "arguments": ["x"]}, "are objects"),
        ({"callback": NOTIFIER, "deadlines": {"migrate_namespaces": "10m"}}, "write minutes, as 600"),
        ({"callback": NOTIFIER, "deadlines": {"migrate_namespaces": 0}}, "write minutes, as 600"),
    ],
)
def test_a_mistake_says_what_to_write(configure: Any, value: dict[str, Any], words: str) -> None:
    configure(**value)
    with pytest.raises(InvalidRequest, match=VARIABLE) as refused:
        run_alerts("migrate_namespaces")
    assert words in str(refused.value)


def test_what_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "page me")
    with pytest.raises(InvalidRequest, match="is not valid JSON"):
        run_alerts("migrate_namespaces")
