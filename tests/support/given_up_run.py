"""The ways in which settings come back after a run that is given up: by hand, by the watch, by the next run."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from tests.support.airflow_faults import DAG, OVER, wait_until
from tests.support.disturbances import Ending
from tests.support.disturbed_run import COMMAND_SECONDS, DisturbedRun
from tests.support.migration import RATE

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.runs.leases import ClusterRuns
from pulsar_fleet.cluster.runs.state_topic import update_runs

log = logging.getLogger(__name__)


def bring_back(run: DisturbedRun, ending: Ending) -> None:
    """Wait for the end of a run that is given up, then have its settings restored."""
    run.end()
    match ending:
        case Ending.WATCHED:
            watch(run)
        case Ending.FOLLOWED:
            follow(run)
    restore(run)


def restore(run: DisturbedRun) -> None:
    """Give the run up on the terminal."""
    words = ("--ended", f"{DAG}/{run.run}", "--namespaces", str(run.name), "--delete-inactive-topics")
    commands = [
        run.start_command(side.name, "restore", side.admin_url, *words, "--end-replication", "--yes")
        for side in run.bench.sides
    ]
    for process in commands:
        out, _ = process.communicate(timeout=COMMAND_SECONDS)
        assert process.returncode == 0, out
        log.info("restore: %s", out[-300:])


def watch(run: DisturbedRun) -> None:
    """Let `watch_overrides` find what the run left when its lease has expired; twice, the second finds nothing."""
    expire_lease(run)
    stack = run.airflow.stack
    for _ in range(2):
        number = stack.trigger("watch_overrides", {"clusters": ["pulsar_blue", "pulsar_green"]})
        wait_until(lambda number=number: stack.run_state("watch_overrides", number) in OVER, 120, "watched")
        log.info("watched: %s", stack.log("watch_overrides", number, "restore_dead_runs")[-500:])
    after = run.settings()["blue"]["namespace"]
    assert after["publishMaxMessageRate"] == {"blue": RATE}


def follow(run: DisturbedRun) -> None:
    """Another run moves the namespace when the lease has expired; meanwhile somebody clears a task of the first."""
    expire_lease(run)
    writes, begin = run.bench.by_others.writes, time.time()
    process = run.migrate("next", "--quiesce-seconds", "5")
    task, delay = run.dice.choice(["restore_blue", "cut_over", "freeze_blue", "clean_up_blue"]), run.dice.uniform(0, 10)
    wait_until(lambda: process.poll() is not None or any(at > begin for at, _ in writes), 90, "the next run works")
    time.sleep(delay)
    moving, cleared = process.poll() is None, time.time()
    log.info("cleared beside another run (%s): %s", moving, task)
    run.airflow.clear(run.run, task)
    out, _ = process.communicate(timeout=COMMAND_SECONDS)
    end = time.time()
    log.info("next run: %s %s", process.returncode, out[-600:])
    run.end()
    beside = [write for at, write in run.bench.by_airflow.writes if cleared < at < end - 3]
    if moving:
        assert beside == [], f"written beside another run: {beside}"
    if process.returncode == 0:
        assert run.is_flagged()


def expire_lease(run: DisturbedRun) -> None:
    """Let the time of the lease pass on both clusters."""

    async def expire(runs: ClusterRuns) -> ClusterRuns:
        lease = runs.leases.get(str(run.name))
        passed = {str(run.name): replace(lease, expires=time.time() - 1)} if lease else {}
        return replace(runs, leases={**runs.leases, **passed})

    async def both() -> None:
        for connection in run.bench.sides:
            async with AdminClient(connection) as admin:
                await update_runs(admin, expire)

    asyncio.run(both())
