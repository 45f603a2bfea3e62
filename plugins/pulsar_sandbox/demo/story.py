"""The demo, act by act: what is started, triggered, waited for and judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import CUT_OVER
from pulsar_fleet.migration.subscriptions.checkpoint import stored_transfers
from pulsar_sandbox import Sandbox
from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.workload import Estate, EstateSpec, Tally, Traffic, build_estate, drain_subscription

LIVE = "acme/orders"
SPEC = EstateSpec(live=LIVE)
DAGS = ("onboard_cluster", "migrate_namespaces", "verify_clusters")
SIDES = ("blue", "green")
SETTINGS = {"brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "86400"}
"""Brokers delete a topic without subscriptions after a minute, some of its partitions first: a snapshot that comes that
late on a loaded machine finds half a topic."""
RUN_SECONDS = 600
POLL_SECONDS = 1.0
RATE = 25.0
"""Messages per second on each of the two topics: two cores also run the brokers, Airflow and Spark."""
BEFORE_SECONDS = 3.0
AFTER_SECONDS = 3.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Finished:
    """One DAG run that has ended.

    :param tasks: (task id, state, seconds) in the order of their start.
    """

    dag_id: str
    run_id: str
    state: str
    seconds: float
    tasks: tuple[tuple[str, str, float], ...]

    @property
    def succeeded(self) -> bool:
        """Whether Airflow calls it a success."""
        return self.state == "success"


@dataclass(frozen=True, slots=True)
class Window:
    """What was written to one partition of blue after the cursors of its subscriptions were set on green.

    :param end: blue's last entry before; None if there was none.
    :param messages: how many messages lie behind it, each of which a subscription gets from both sides.
    """

    end: Position | None
    messages: int


@dataclass(slots=True)
class Outcome:
    """The results by which the demo is judged, collected while it runs."""

    estate: Estate | None = None
    runs: dict[str, Finished] = field(default_factory=dict)
    tally: Tally | None = None
    windows: dict[str, Window] = field(default_factory=dict)
    """Partition → what the switch said each of its subscriptions would get twice."""
    archive: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Topic → messages that the idle subscription got on green, and how many of them were different ones."""
    artefacts: Path | None = None


class Demo:
    """The running pieces of a demo in one folder.

    :param folder: state of everything; data of an earlier demo in it must have been removed.
    :param say: takes one line of progress.
    """

    def __init__(self, *, folder: Path, say: Say) -> None:
        self.folder = folder
        self.say = say
        self.outcome = Outcome(artefacts=folder / "airflow" / "pulsar-fleet" / "artefacts")

    @contextmanager
    def running(self) -> Iterator[tuple[Sandbox, AirflowStack]]:
        """Two clusters and Airflow, started side by side; all of it is stopped on the way out unless released."""
        self.say("starting two Pulsar clusters and Airflow")
        stack = AirflowStack.launch(self.folder / "airflow")
        try:
            with (
                ThreadPoolExecutor(1) as pool,
                Sandbox.start(
                    self.folder / "sandbox", settings=dict.fromkeys(SIDES, SETTINGS), progress=self.say
                ) as sandbox,
            ):
                built = pool.submit(self._build, sandbox)
                stack.wait_ready(*DAGS)
                self.say(f"Airflow is ready: {stack.url}")
                self.outcome.estate = built.result()
                for cluster in sandbox:
                    stack.put_connection(
                        f"pulsar_{cluster.name}",
                        conn_type="pulsar",
                        host=cluster.admin_url,
                        extra=f'{{"service_url": "{cluster.service_url}"}}',
                    )
                stack.put_connection("spark_default", conn_type="spark", host="local[2]")
                yield sandbox, stack
        finally:
            stack.close()

    def play(self, sandbox: Sandbox, stack: AirflowStack) -> Outcome:
        """Onboard green, move the live namespace to it while its clients work, and prove that nothing was lost."""
        blue, green = (_connection(sandbox, name) for name in SIDES)
        self.say("starting live traffic on blue: 3 applications that write, 8 subscriptions that read")
        traffic = Traffic.start(blue, namespace=LIVE, folder=self.folder / "traffic", rate=RATE)
        with traffic:
            sides = {"source": "pulsar_blue", "target": "pulsar_green"}
            if not self._run(stack, "onboard_cluster", {**sides, "auto_approve": True}):
                return self.outcome
            time.sleep(BEFORE_SECONDS)
            moved = {"blue": "pulsar_blue", "green": "pulsar_green", "namespaces": [LIVE], "auto_approve": True}
            # verify_clusters reads blue afterwards.
            moved["unload_terminated_topics"] = False
            if not self._run(stack, "migrate_namespaces", moved):
                return self.outcome
            self.outcome.windows = _windows(stack, self.outcome)
            time.sleep(AFTER_SECONDS)
            self._run(stack, "verify_clusters", {**sides, "namespaces": [LIVE]})
            self.say("stopping the traffic and counting")
            self.outcome.tally = traffic.stop()
        self.say("reading the backlog of the idle subscription 'archive' on green")
        for name in ("events", "audit"):
            topic = TopicName.parse(f"persistent://{LIVE}/{name}")
            got = drain_subscription(green, topic, "archive", acknowledge=False, at_least=SPEC.history)
            self.outcome.archive[str(topic)] = (len(got), len(set(got)))
        return self.outcome

    def _build(self, sandbox: Sandbox) -> Estate:
        estate = asyncio.run(build_estate(_connection(sandbox, "blue"), SPEC))
        holds = estate.holds
        self.say(
            f"blue has {holds.tenants} tenants, {holds.namespaces} namespaces, {holds.topics} topics, "
            f"{holds.subscriptions} subscriptions, {holds.messages:,} messages"
        )
        return estate

    def _run(self, stack: AirflowStack, dag_id: str, conf: Mapping[str, Any]) -> bool:
        run_id = stack.trigger(dag_id, conf)
        self.say(f"{dag_id} triggered: {stack.url}/dags/{dag_id}/runs/{run_id}")
        began, reported = time.monotonic(), set[str]()
        while (state := stack.run_state(dag_id, run_id)) not in ("success", "failed"):
            self._tell_finished(stack, dag_id, run_id, reported)
            if time.monotonic() - began > RUN_SECONDS:
                state = f"not finished after {RUN_SECONDS} s"
                break
            time.sleep(POLL_SECONDS)
        self._tell_finished(stack, dag_id, run_id, reported)
        tasks = sorted((task for task in stack.tasks(dag_id, run_id)), key=lambda task: task["start_date"] or "~")
        finished = Finished(
            dag_id,
            run_id,
            state,
            time.monotonic() - began,
            tuple((task["task_id"], task["state"] or "none", task["duration"] or 0.0) for task in tasks),
        )
        self.outcome.runs[dag_id] = finished
        return finished.succeeded

    def _tell_finished(self, stack: AirflowStack, dag_id: str, run_id: str, reported: set[str]) -> None:
        for task in stack.tasks(dag_id, run_id):
            if task["state"] in ("success", "failed", "skipped", "upstream_failed") and task["task_id"] not in reported:
                reported.add(task["task_id"])
                seconds = f" in {task['duration']:.1f} s" if task["duration"] else ""
                self.say(f"  {dag_id}: {task['task_id']} {task['state']}{seconds}")
                if task["state"] == "failed":
                    self.say(_reason(stack.log(dag_id, run_id, task["task_id"], task["try_number"], task["map_index"])))


def _connection(sandbox: Sandbox, name: str) -> ClusterConnection:
    cluster = sandbox[name]
    return ClusterConnection(name=name, admin_url=cluster.admin_url, service_url=cluster.service_url)


def _windows(stack: AirflowStack, outcome: Outcome) -> dict[str, Window]:
    run, home = outcome.runs["migrate_namespaces"], stack.folder / "pulsar-fleet"
    artefacts = Artefacts.open(str(outcome.artefacts))
    records = Run(f"{run.dag_id}/{run.run_id}", Ledger.open(f"sqlite:///{home / 'ledger.db'}"), artefacts)
    placed = stored_transfers(records, LIVE)
    return {
        partition: Window(placed[TopicName.parse(partition)].end, messages)
        for namespace in records.stored(CUT_OVER).values()
        for partition, messages in namespace["duplicates"].items()
    }


def _reason(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-4:])
