"""A DAG that messages start, on a real triggerer, scheduler and broker: soon, and without the loss of a message."""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_sandbox import Sandbox
from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.sandbox.guarded import GuardedProcess

pytestmark = [pytest.mark.fleet, pytest.mark.onboarding]

log = logging.getLogger(__name__)

EXAMPLES = Path(__file__).parents[1] / "system"
DAG = "example_pulsar_message_queue"
TOPIC = "persistent://examples/airflow/orders"
MESSAGES = 1000
PAUSE_SECONDS = 3
"""Longer than the trigger waits after an event to collect messages."""
MOST_TIMES = 6
"""Of the time in which Airflow starts a triggered run: the triggerer hands over events once a second."""
SETTINGS = {
    "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
    "AIRFLOW__CORE__PLUGINS_FOLDER": "/nonexistent",  # Without our procedures: the installed package is enough.
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    # The triggers of one that died are taken over after 30 s by default.
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}


class WatchingAirflow:
    """An Airflow whose DAG a topic starts."""

    def __init__(self, stack: AirflowStack, cluster: ClusterConnection) -> None:
        self.stack = stack
        self._client = open_client(cluster)
        self._producer = self._client.create_producer(TOPIC)
        self._triggerers: list[GuardedProcess] = []

    def publish(self, content: str) -> float:
        """The time at which the broker had stored it, seconds since 1970."""
        self._producer.send(content.encode())
        return time.time()

    def runs(self) -> list[dict[str, Any]]:
        return self.stack.runs(DAG)

    def handled(self) -> dict[str, str]:
        """Content of each message that a finished run got → the run."""
        finished = [run["dag_run_id"] for run in self.runs() if run["state"] == "success"]
        return {content: run for run in finished for content in self.stack.result(DAG, run, "handle_orders") or []}

    def run_with(self, content: str, seconds: float) -> dict[str, Any]:
        """The run that got a message."""
        run = wait_for(lambda: self.handled().get(content), seconds, f"a run with {content!r}")
        return next(entry for entry in self.runs() if entry["dag_run_id"] == run)

    def start_by_hand(self) -> float:
        """How many seconds Airflow takes to start a run that was triggered: what no message can do sooner."""
        triggered = time.time()
        run_id = self.stack.trigger(DAG, {})
        return (
            _started(
                wait_for(
                    lambda: next(
                        (run for run in self.runs() if run["dag_run_id"] == run_id and run["start_date"]), None
                    ),
                    60,
                    "the triggered run started",
                )
            )
            - triggered
        )

    def kill_triggerer(self) -> None:
        """Kill -9 its processes, as a lost machine does."""
        processes = [process for process in psutil.process_iter() if _is_triggerer(process, self.stack.folder)]
        assert processes
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=20)

    def start_triggerer(self) -> None:
        process = GuardedProcess(self.stack.folder / f"triggerer-{len(self._triggerers)}")
        self._triggerers.append(process)
        process.start([str(Path(sys.executable).parent / "airflow"), "triggerer", "--skip-serve-logs"])

    def close(self) -> None:
        self._client.close()
        for process in self._triggerers:
            process.stop()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """A cluster of its own, whose broker is restarted."""
    with start_clusters(tmp_path_factory.mktemp("sandbox"), clusters=("blue",)) as sandbox:
        admin = sandbox["blue"].admin_url
        for path, body in (
            ("tenants/examples", {"allowedClusters": ["blue"]}),
            ("namespaces/examples/airflow", {"replication_clusters": ["blue"]}),
        ):
            httpx.put(f"{admin}/admin/v2/{path}", json=body, timeout=60).raise_for_status()
        yield sandbox


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory, sandbox: Sandbox) -> Iterator[WatchingAirflow]:
    cluster = sandbox["blue"]
    connection = ClusterConnection(name="blue", admin_url=cluster.admin_url, service_url=cluster.service_url)
    before = dict(os.environ)
    del os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    fields = {"conn_type": "pulsar", "host": cluster.admin_url, "extra": {"service_url": cluster.service_url}}
    settings = {**SETTINGS, "AIRFLOW_CONN_PULSAR_DEFAULT": json.dumps(fields)}
    stack = AirflowStack.launch(tmp_path_factory.mktemp("airflow"), settings=settings)
    airflow = None
    try:
        stack.wait_ready(DAG)
        wait_for(lambda: has_consumer(cluster.admin_url), 120, "a consumer of the triggerer")
        airflow = WatchingAirflow(stack, connection)
        yield airflow
    finally:
        if airflow:
            airflow.close()
        stack.stop()
        os.environ.clear()
        os.environ.update(before)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_message_starts_a_run_almost_as_soon_as_a_person_does(watching: WatchingAirflow) -> None:
    floor, delays = [], []
    for number in range(5):
        floor.append(watching.start_by_hand())
        published = watching.publish(f"soon-{number}")
        run = watching.run_with(f"soon-{number}", 60)
        delays.append(_started(run) - published)
        time.sleep(PAUSE_SECONDS)
    for what, seconds in (("triggered", floor), ("acknowledged by the broker", delays)):
        log.info("%s → run started, s: %s", what, sorted(round(delay, 2) for delay in seconds))
    assert statistics.median(delays) < MOST_TIMES * statistics.median(floor)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_triggerer_and_a_killed_broker_lose_none_of_1000_messages(
    watching: WatchingAirflow, sandbox: Sandbox
) -> None:
    expected = [f"order-{number}" for number in range(MESSAGES)]
    started = time.monotonic()
    for number, content in enumerate(expected):
        if number == MESSAGES // 4:
            watching.kill_triggerer()
        if number == MESSAGES // 4 + 100:
            watching.start_triggerer()
        if number == 3 * MESSAGES // 4:
            sandbox["blue"].kill()
            sandbox["blue"].restart()
        watching.publish(content)
        time.sleep(0.01)
    published = time.monotonic()

    def missing() -> list[str]:
        handled = watching.handled()
        return [content for content in expected if content not in handled]

    try:
        wait_for(lambda: not missing(), 180, "every message in a run")
    finally:
        lost = missing()
        log.info(
            "%d messages published in %.0f s, the last handled %.0f s later in %d runs; not handled: %d %s",
            *(MESSAGES, published - started, time.monotonic() - published, len(watching.runs()), len(lost), lost[:5]),
        )


def has_consumer(admin_url: str) -> bool:
    answer = httpx.get(f"{admin_url}/admin/v2/{TOPIC.replace('://', '/')}/stats", timeout=60)
    return answer.is_success and bool(answer.json()["subscriptions"].get("airflow", {}).get("consumers"))


def wait_for(holds: Any, seconds: float, what: str) -> Any:
    end = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.3)
    return value


def _started(run: dict[str, Any]) -> float:
    return datetime.fromisoformat(run["start_date"]).timestamp()


def _is_triggerer(process: psutil.Process, home: Path) -> bool:
    try:
        return "triggerer" in " ".join(process.cmdline()) and process.environ().get("AIRFLOW_HOME") == str(home)
    except psutil.Error:
        return False
