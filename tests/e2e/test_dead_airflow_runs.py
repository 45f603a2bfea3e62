"""Whatever happens to an Airflow and beside it while a namespace moves, every setting of both clusters comes back.

Each round is a migration with several points at random moments: processes killed with SIGKILL, runs marked as failed,
tasks cleared, another run and an onboarding beside it. The dice of a round are its number.

PULSAR_FLEET_AIRFLOW_POINTS: how many points, none unless set (`make test-full` sets it): half a minute each.
PULSAR_FLEET_AIRFLOW_FIRST: the number of the first round.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.airflow_faults import DAG, OVER, QUICK, FaultyAirflow, command, wait_until
from tests.support.exporter import neutral
from tests.support.migration import INACTIVE, LATE, RATE, TOPIC_RATE, publish
from tests.support.proxy import Proxy
from tests.support.settings_export import records_of_runs, settings

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.leases import ClusterRuns
from pulsar_fleet.cluster.runs.state_topic import update_runs
from pulsar_sandbox.workload.live import NumberedMessage

log = logging.getLogger(__name__)
PER_ROUND = 4
FIRST = int(os.environ.get("PULSAR_FLEET_AIRFLOW_FIRST", "0"))
ROUNDS = range(FIRST, FIRST - (-int(os.environ.get("PULSAR_FLEET_AIRFLOW_POINTS", "0")) // PER_ROUND))
TASKS = (
    "check_gates",
    "prepare_green",
    "recheck_gates",
    "freeze_blue",
    "start_replication",
    "wait_replicated",
    "verify_copy",
    "cut_over",
    "cut_over",
    "verify_subscriptions",
    "wait_drained",
    "verify_messages",
    "clean_up_blue",
    "restore_blue",
)
KINDS = ("task killed", "scheduler killed", "marked as failed", "task cleared", "second run", "onboarding")
ENDINGS = ("continued", "restored", "watched", "followed")
WRITES = ("PUT", "POST", "DELETE")
EVENTS = "events"


class Recorder(Proxy):
    """Notes the time of each write."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.writes: list[tuple[float, str]] = []

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        method, target, _ = head.decode().split("\r\n", 1)[0].split(" ")
        if method in WRITES and "/pulsar/fleet" not in target:
            self.writes.append((time.time(), f"{method} {target} {body.decode()[:80]}"))
        return await super()._forward(head, body)


@contextmanager
def recording(*upstreams: str) -> Iterator[list[Recorder]]:
    """Proxies in a thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    recorders = [Recorder(url) for url in upstreams]
    try:
        for recorder in recorders:
            asyncio.run_coroutine_threadsafe(recorder.__aenter__(), loop).result()
        yield recorders
    finally:
        for recorder in recorders:
            asyncio.run_coroutine_threadsafe(recorder.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass(frozen=True)
class Bench:
    """One Airflow and one pair of clusters; Airflow and other runs reach blue through proxies of their own."""

    airflow: FaultyAirflow
    blue: ClusterConnection
    green: ClusterConnection
    by_airflow: Recorder
    by_others: Recorder


@pytest.fixture(scope="module")
def bench(airflow_with: Callable[..., Any], blue: ClusterConnection, green: ClusterConnection) -> Iterator[Bench]:
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with (
        recording(blue.admin_url, blue.admin_url) as (by_airflow, by_others),
        airflow_with(QUICK | {"PULSAR_FLEET_WATCH": '{"schedule": null}'}, blue=by_airflow.url) as stack,
    ):
        faulty = FaultyAirflow(stack)
        try:
            yield Bench(faulty, blue, green, by_airflow, by_others)
        finally:
            faulty.close()


@dataclass
class Round:
    """A namespace that moves, and what happens to its run."""

    bench: Bench
    name: NamespaceName
    folder: Path
    dice: random.Random
    run: str = ""

    @property
    def airflow(self) -> FaultyAirflow:
        return self.bench.airflow

    def note(self, text: str) -> None:
        log.info("%s", text)

    def settings(self) -> dict[str, Any]:
        return {side.name: settings(side.admin_url, str(self.name)) for side in (self.bench.blue, self.bench.green)}

    def is_flagged(self) -> bool:
        return bool(self.settings()["blue"]["namespace"]["migrated"])

    def is_over(self) -> bool:
        return self.airflow.run_state(self.run) in OVER

    def reach(self, task: str) -> None:
        """Wait until a task works or is over, then a random time."""
        self.note(f"waiting for {task}")
        wait_until(
            lambda: (
                self.is_over()
                or task in self.airflow.processes(self.run)
                or self.airflow.states(self.run)[task] not in (None, "scheduled", "queued", "up_for_retry")
            ),
            300,
            f"{task} works",
        )
        time.sleep(self.dice.uniform(0, 8 if task == "cut_over" else 2.5))

    def happen(self, kind: str) -> None:
        before = self.airflow.states(self.run)
        self.note(f"{kind}; running: {[task for task, state in before.items() if state == 'running']}")
        match kind:
            case "task killed":
                wait_until(lambda: self.is_over() or self.airflow.processes(self.run), 120, "a task works")
                time.sleep(self.dice.uniform(0, 0.5))
                running = self.airflow.processes(self.run)
                self.note(f"killed: {[task for task in running if self.airflow.kill_task(self.run, task)]}")
            case "scheduler killed":
                self.airflow.kill_scheduler()
                time.sleep(self.dice.uniform(0, 3))
                self.airflow.start_scheduler()
            case "marked as failed":
                self.airflow.mark_failed(self.run)
                time.sleep(self.dice.uniform(0, 4))
                self.resume()
            case "task cleared":
                started = [task for task, state in before.items() if state and task in TASKS]
                task, downstream = self.dice.choice(started), self.dice.random() < 0.7
                self.note(f"cleared: {task}, downstream: {downstream}")
                self.airflow.clear(self.run, task, downstream=downstream)
            case "second run":
                self.be_refused()
            case "onboarding":
                said = self.command(
                    "apply", self.bench.blue.admin_url, self.bench.green.admin_url, "--select", str(self.name), "--yes"
                )
                self.note(f"onboarding: {said.returncode} {said.stdout[-300:]}")

    def resume(self) -> None:
        """Clear what did not succeed, as a person continues a run."""
        tasks = [task for task, state in self.airflow.states(self.run).items() if state not in ("success", "running")]
        self.note(f"cleared: {tasks}")
        self.airflow.clear(self.run, *tasks)

    def finish(self) -> None:
        """Continue the run until it succeeds."""
        for _ in range(3):
            if self.airflow.run_state(self.run) == "success":
                return
            self.resume()
            self.end()
        assert self.airflow.run_state(self.run) == "success", self.problems()

    def command(self, *words: str, name: str = "beside") -> subprocess.CompletedProcess[str]:
        process = command(self.folder / name, *words)
        out, _ = process.communicate(timeout=200)
        return subprocess.CompletedProcess(words, process.returncode, out, "")

    def migrate(self, name: str, *options: str) -> subprocess.Popen[str]:
        """The same namespace from another Airflow home."""
        sides = (self.bench.by_others.url, self.bench.green.admin_url)
        return command(self.folder / name, "migrate", *sides, "--namespaces", str(self.name), "--yes", *options)

    def be_refused(self) -> None:
        """Another run gets nothing while this one has its lease."""
        written, leased = len(self.bench.by_others.writes), self.lease() is not None
        out, _ = (process := self.migrate("beside")).communicate(timeout=200)
        writes = self.bench.by_others.writes[written:]
        self.note(f"second run: {process.returncode} {out[-400:]}")
        if leased:
            assert (process.returncode != 0, writes) == (True, []), out

    def lease(self) -> Any:
        return records_of_runs(self.bench.blue.require_service_url()).get("leases", {}).get(str(self.name))

    def end(self, seconds: float = 300) -> str:
        """Wait until the run is over and nothing works for it."""
        wait_until(lambda: self.is_over() and not self.airflow.processes(self.run), seconds, "the run is over")
        state = self.airflow.run_state(self.run)
        self.note(f"{state}: {self.problems()}")
        return state

    def problems(self) -> dict[str, str]:
        failed = [task for task in self.airflow.stack.tasks(DAG, self.run) if task["state"] == "failed"]
        return {
            task["task_id"]: self.airflow.stack.log(DAG, self.run, task["task_id"], task["try_number"])[-700:]
            for task in failed
        }

    def expire_lease(self) -> None:
        """Let the time of the lease pass on both clusters."""

        async def expire(runs: ClusterRuns) -> ClusterRuns:
            lease = runs.leases.get(str(self.name))
            passed = {str(self.name): replace(lease, expires=time.time() - 1)} if lease else {}
            return replace(runs, leases={**runs.leases, **passed})

        async def both() -> None:
            for connection in (self.bench.blue, self.bench.green):
                async with AdminClient(connection) as admin:
                    await update_runs(admin, expire)

        asyncio.run(both())

    def restore(self) -> None:
        """Give the run up on the terminal."""
        for connection in (self.bench.blue, self.bench.green):
            words = ("--ended", f"{DAG}/{self.run}", "--namespaces", str(self.name), "--delete-inactive-topics")
            said = self.command("restore", connection.admin_url, *words, "--end-replication", "--yes")
            assert said.returncode == 0, said.stdout
            self.note(f"restore: {said.stdout[-300:]}")

    def watch(self) -> None:
        """Let `watch_overrides` find what the run left when its lease has expired; twice, the second finds nothing."""
        self.expire_lease()
        stack = self.airflow.stack
        for _ in range(2):
            watch = stack.trigger("watch_overrides", {"clusters": ["pulsar_blue", "pulsar_green"]})
            state = wait_until(
                lambda watch=watch: (s := stack.run_state("watch_overrides", watch)) in OVER and s, 120, "watched"
            )
            log = stack.log("watch_overrides", watch, "restore_dead_runs")
            self.note(f"watched: {state} {log[-500:]}")
        after = self.settings()["blue"]["namespace"]
        assert after["publishMaxMessageRate"] == {"blue": RATE}

    def follow(self) -> None:
        """Another run moves the namespace when the lease has expired; meanwhile somebody clears a task of the first."""
        self.expire_lease()
        process, begin = self.migrate("next", "--quiesce-seconds", "5"), time.time()
        task = self.dice.choice(["restore_blue", "cut_over", "freeze_blue", "clean_up_blue"])
        delay = self.dice.uniform(0, 10)
        wait_until(
            lambda: process.poll() is not None or any(at > begin for at, _ in self.bench.by_others.writes), 90, "works"
        )
        time.sleep(delay)
        moving, cleared = process.poll() is None, time.time()
        self.note(f"cleared beside another run ({moving}): {task}")
        self.airflow.clear(self.run, task)
        out, _ = process.communicate(timeout=250)
        end = time.time()
        self.note(f"next run: {process.returncode} {out[-600:]}")
        self.end()
        beside = [write for at, write in self.bench.by_airflow.writes if cleared < at < end - 3]
        if moving:
            assert beside == [], f"written beside another run: {beside}"
        if process.returncode == 0:
            assert self.is_flagged()


def make(side: ClusterConnection, name: NamespaceName) -> None:
    """A small namespace with policies of its own, and a backlog without consumers."""

    async def create() -> None:
        async with AdminClient(side) as admin:
            await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [side.name]})
            await admin.put_namespace(name, {"replication_clusters": [side.name]})
            events, late = TopicName(name, EVENTS), TopicName(name, LATE)
            await admin.create_partitioned_topic(events, 2)
            await admin.create_topic(late)
            await admin.create_subscription(late, LATE)
            for part in events.partitions(2):
                await admin.create_subscription(part, "billing")
            await admin.post(f"/namespaces/{name.path}/publishRate", RATE)
            await admin.post(f"/{events.path}/publishRate", TOPIC_RATE)
            await admin.post(f"/{late.path}/inactiveTopicPolicies", INACTIVE)

    asyncio.run(create())
    publish(side, TopicName(name, LATE), [NumberedMessage(LATE, "key", number, 1) for number in range(20)])


@pytest.fixture
def moving(bench: Bench, new_namespace: Callable[[], NamespaceName], tmp_path: Path) -> Iterator[Round]:
    moving = Round(bench, new_namespace(), tmp_path, random.Random())
    make(bench.blue, moving.name)
    yield moving
    if not moving.is_over():
        moving.airflow.mark_failed(moving.run)
        moving.end()
    moving.restore()


@pytest.mark.full
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("number", ROUNDS)
def test_every_setting_comes_back(number: int, moving: Round) -> None:
    moving.dice = dice = random.Random(f"round {number}")
    before = moving.settings()
    ending = ENDINGS[number % len(ENDINGS)]
    points = sorted(
        ((dice.choice(TASKS), dice.choice(KINDS)) for _ in range(PER_ROUND - 1)),
        key=lambda point: TASKS.index(point[0]),
    )
    moving.note(f"round {number}: {points}, {ending}")
    conf = {"namespaces": [str(moving.name)], "auto_approve": True}
    moving.run = moving.airflow.stack.trigger(DAG, conf)
    last = dice.choice(TASKS[4:]) if ending != "continued" else ""
    given_up = TASKS.index(last) if last else len(TASKS)
    for task, kind in points:
        if TASKS.index(task) > given_up:
            continue
        moving.reach(task)
        moving.happen(kind)
    if last:
        moving.reach(last)
        moving.note(f"marked as failed for good; running: {list(moving.airflow.processes(moving.run))}")
        moving.airflow.mark_failed(moving.run)
    moving.end()
    if not last:
        moving.finish()
        task = dice.choice(["cut_over", "restore_blue", "freeze_blue"])
        moving.note(f"cleared in a finished run: {task}")
        moving.airflow.clear(moving.run, task)
        moving.end()
    match ending:
        case "watched":
            moving.watch()
        case "followed":
            moving.follow()
    if ending != "continued":
        moving.restore()
    if moving.is_flagged():
        # Its clients are on green: the run is continued to its end, whatever was restored in between.
        moving.finish()
        moving.restore()
    require_original(before, moving.settings())
    for side in (moving.bench.blue, moving.bench.green):
        records = records_of_runs(side.require_service_url())
        assert str(moving.name) not in records.get("leases", {})
        assert not records.get("brokers")


def require_original(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Blue's settings are as before apart from the flag; green's are its own as before, or those of blue."""
    original, blue, green = before["blue"], after["blue"], neutral(after["green"], "green")
    flagged = blue["namespace"].pop("migrated")
    original["namespace"].pop("migrated")
    assert {**blue, "namespace": cleaned(blue["namespace"])} == {
        **original,
        "namespace": cleaned(original["namespace"]),
    }
    assert green.pop("brokers") == before["green"]["brokers"]
    expected = neutral(original, "blue")
    expected.pop("brokers")
    if "namespace" in green:
        green["namespace"].pop("migrated")
        green["namespace"] = cleaned(green["namespace"])
    expected["namespace"] = cleaned(expected["namespace"])
    if flagged:
        assert green == expected
    assert {key: value for key, value in green.items() if expected.get(key) != value} == {}


def cleaned(policies: dict[str, Any]) -> dict[str, Any]:
    """Without empty properties, which mean the same as none."""
    return {key: value for key, value in policies.items() if value not in (None, {}, [])}
