"""What happens to an Airflow while a run works: killed tasks and schedulers, runs marked as failed, cleared tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.support.airflow_processes import AirflowProcesses, end_processes, task_processes

from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.sandbox.guarded import GuardedProcess

# A task without heartbeats is retried soon, and a new scheduler soon takes over from a dead one. With a threshold of
# 8 s a scheduler on a busy machine takes itself for dead and resets its own tasks again and again (observed).
QUICK = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
}
OVER = ("success", "failed")
DAG = "migrate_namespaces"


class FaultyAirflow:
    """An Airflow, and ways to disturb runs of a DAG."""

    def __init__(self, stack: AirflowStack, dag: str = DAG) -> None:
        self.stack, self.dag = stack, dag
        token = httpx.get(f"{stack.url}/auth/token", timeout=60).raise_for_status().json()["access_token"]
        self._client = httpx.Client(
            base_url=f"{stack.url}/api/v2", timeout=60, headers={"Authorization": f"Bearer {token}"}
        )
        self._schedulers: list[GuardedProcess] = []
        self._orphans: list[psutil.Process] = []
        self._processes = AirflowProcesses(stack.folder)

    def close(self) -> None:
        """End Airflow with all that it ever started, also what a killed scheduler left."""
        self._client.close()
        for process in self._schedulers:
            process.stop()
        self.stack.stop()
        end_processes(self._processes.started())
        assert self._processes.started() == []

    def end_orphans(self) -> None:
        """End what killed schedulers left: their executors wait for work without an end."""
        end_processes(self._orphans)
        self._orphans.clear()

    def states(self, run: str) -> dict[str, str | None]:
        """Task → its state."""
        return {task["task_id"]: task["state"] for task in self.stack.tasks(self.dag, run)}

    def run_state(self, run: str) -> str:
        return self.stack.run_state(self.dag, run)

    def processes(self, run: str) -> dict[str, int]:
        """Running task → the process that executes it."""
        titles = {f"airflow worker -- {task['id']}": task["task_id"] for task in self.stack.tasks(self.dag, run)}
        return {titles[title]: pid for title, pid in task_processes().items() if title in titles}

    def works(self) -> bool:
        """Whether a process executes a task of any run, or is about to."""
        return bool(self._processes.working())

    def kill_task(self, run: str, task: str) -> bool:
        """Kill -9 the process that executes a task; False where none does."""
        return (pid := self.processes(run).get(task)) is not None and _kill(pid)

    def kill_scheduler(self) -> bool:
        """Kill -9 the scheduler alone: what it had started goes on; False where none runs."""
        schedulers = self._processes.schedulers()
        for scheduler in schedulers:
            with suppress(psutil.NoSuchProcess):
                self._orphans += scheduler.children(recursive=True)
        return any([_kill(scheduler.pid) for scheduler in schedulers])

    def start_scheduler(self) -> None:
        """Start another one."""
        process = GuardedProcess(self.stack.folder / f"scheduler-{len(self._schedulers)}")
        self._schedulers.append(process)
        process.start([str(Path(sys.executable).parent / "airflow"), "scheduler"])
        self._processes.note_sessions()

    def mark_failed(self, run: str) -> None:
        """As a person does in the UI."""
        self._call("PATCH", f"/dags/{self.dag}/dagRuns/{run}", {"state": "failed"})

    def clear(self, run: str, *tasks: str, downstream: bool = False) -> None:
        """Clear tasks as a person does in the UI, whatever their state."""
        body = {"dry_run": False, "only_failed": False, "dag_run_id": run, "task_ids": list(tasks)}
        self._call("POST", f"/dags/{self.dag}/clearTaskInstances", {**body, "include_downstream": downstream})

    def _call(self, method: str, path: str, body: Any) -> None:
        answer = self._client.request(method, path, json=body)
        assert answer.is_success, answer.text


def wait_until(holds: Callable[[], Any], seconds: float, what: str) -> Any:
    """What `holds` returns at last."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.3)
    return value


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`pulsar-fleet` from another Airflow home, with a ledger of its own."""
    folder.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "PULSAR_FLEET_LEDGER": f"sqlite:///{folder / 'ledger.db'}",
        "PULSAR_FLEET_ARTEFACTS": str(folder / "artefacts"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "pulsar_fleet.cli", *words],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
