"""A run in Airflow that moves a namespace, and what disturbs it."""

from __future__ import annotations

import logging
import random
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.airflow_faults import DAG, OVER, FaultyAirflow, command, wait_until
from tests.support.dag_runs import BLUE_TO_GREEN
from tests.support.disturbances import TASKS, Ending, Kind, Point
from tests.support.settings_export import records_of_runs, settings
from tests.support.write_recorder import WriteRecorder

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName

log = logging.getLogger(__name__)
DONE = ("success", "skipped")
WORKS = ("running", "deferred", "up_for_reschedule")
COMMAND_SECONDS = 250


@dataclass(frozen=True)
class Bench:
    """One Airflow and one pair of clusters; Airflow and other runs reach blue through proxies of their own."""

    airflow: FaultyAirflow
    blue: ClusterConnection
    green: ClusterConnection
    by_airflow: WriteRecorder
    by_others: WriteRecorder

    @property
    def sides(self) -> tuple[ClusterConnection, ClusterConnection]:
        return self.blue, self.green


@dataclass
class DisturbedRun:
    """The run; `folder` holds the homes of the commands beside it."""

    bench: Bench
    name: NamespaceName
    folder: Path
    dice: random.Random
    run: str = ""
    _commands: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def airflow(self) -> FaultyAirflow:
        return self.bench.airflow

    def start(self, **conf: Any) -> None:
        conf = BLUE_TO_GREEN | {"namespaces": [str(self.name)], "auto_approve": True} | conf
        self.run = self.airflow.stack.trigger(DAG, conf)

    def give_up(self) -> None:
        """End what still works for the namespace, after a failure of the test too."""
        for process in self._commands:
            if process.poll() is None:
                process.kill()
                process.communicate()
        if self.run and not self.is_over():
            self.airflow.mark_failed(self.run)
            self.end()

    def settings(self) -> dict[str, Any]:
        return {side.name: settings(side.admin_url, str(self.name)) for side in self.bench.sides}

    def is_flagged(self) -> bool:
        return bool(self.settings()["blue"]["namespace"]["migrated"])

    def is_over(self) -> bool:
        return self.airflow.run_state(self.run) in OVER

    def lease(self) -> Any:
        return records_of_runs(self.bench.blue.require_service_url()).get("leases", {}).get(str(self.name))

    def place(self) -> str | None:
        """The tasks that work, or the one before which the run is; None if the run is over or only reports."""
        states = self.airflow.states(self.run)
        following = next((task for task in TASKS if states[task] not in DONE), None)
        if following is None or self.is_over():
            return None
        working = [task for task, state in states.items() if state in WORKS]
        return " and ".join(sorted(working)) or f"before {following}"

    def reach(self, task: str) -> None:
        """Wait until a task works or is over, then a random time.

        A run that failed of an earlier disturbance is continued.
        """

        def reached() -> bool:
            if (state := self.airflow.run_state(self.run)) == "failed":
                log.info("failed: %s", self.problems())
                self.resume()
            states = self.airflow.states(self.run)
            return state == "success" or states[task] not in (None, "scheduled", "queued", "up_for_retry")

        wait_until(reached, 300, f"{task} works")
        time.sleep(self.dice.uniform(0, 8 if task == "cut_over" else 2))

    def play(self, point: Point) -> str | None:
        """Disturb the run; returns where it hit, None if the run was not going on."""
        if not point.task:
            return self.clear_finished()
        self.reach(point.task)
        if (place := self.place()) is None:
            return None
        match point.card.kind:
            case Kind.TASK_KILLED:
                return self.kill_task()
            case Kind.SCHEDULER_KILLED:
                assert self.airflow.kill_scheduler()
                time.sleep(self.dice.uniform(0, 3))
                self.airflow.start_scheduler()
            case Kind.MARKED_FAILED:
                self.airflow.mark_failed(self.run)
                if point.card.ending is Ending.CONTINUED:
                    time.sleep(self.dice.uniform(0, 4))
                    self.resume()
            case Kind.TASK_CLEARED:
                self.clear_task()
            case Kind.SECOND_RUN:
                return place if self.refuse_second() else None
            case Kind.ONBOARDING:
                return place if self.onboard() else None
        return place

    def kill_task(self) -> str | None:
        """Kill -9 what works; a task that had already succeeded was not hit."""
        killed: list[str] = []
        states: dict[str, str | None] = {}

        def kill() -> bool:
            time.sleep(self.dice.uniform(0, 0.5))
            running = self.airflow.processes(self.run)
            killed.extend(task for task in running if self.airflow.kill_task(self.run, task))
            return bool(killed) or self.place() is None

        def known() -> bool:
            states.update(self.airflow.states(self.run))
            return all(states[task] != "running" for task in killed)

        wait_until(kill, 120, "a task works")
        wait_until(known, 60, f"Airflow knows of {killed}")
        return " and ".join(sorted(task for task in killed if states[task] != "success")) or None

    def clear_task(self) -> None:
        states, downstream = self.airflow.states(self.run), self.dice.random() < 0.7
        task = self.dice.choice([task for task in TASKS if states[task]])
        log.info("cleared: %s, downstream: %s", task, downstream)
        self.airflow.clear(self.run, task, downstream=downstream)

    def clear_finished(self) -> str:
        """Clear a task alone in the finished run."""
        self.finish()
        self.airflow.clear(self.run, task := self.dice.choice(["cut_over", "restore_blue", "freeze_blue"]))
        self.end()
        return task

    def refuse_second(self) -> bool:
        """Another run gets nothing while this one has its lease; False if this one was over before it asked."""
        wait_until(lambda: self.is_over() or self.lease(), 60, "the run has its lease")
        if self.is_over():
            return False
        written = len(self.bench.by_others.writes)
        out, _ = (process := self.migrate("beside")).communicate(timeout=COMMAND_SECONDS)
        writes = self.bench.by_others.writes[written:]
        log.info("second run: %s %s", process.returncode, out[-400:])
        assert (process.returncode != 0, writes) == (True, []), out
        return "is being changed by the run" in " ".join(out.split()) or self.place() is not None

    def onboard(self) -> bool:
        """Onboard the same namespace; False if the run was over before the end."""
        urls = [side.admin_url for side in self.bench.sides]
        out, code = self.command("apply", *urls, "--select", str(self.name), "--yes")
        log.info("onboarding: %s %s", code, out[-300:])
        return self.place() is not None

    def resume(self) -> None:
        """Clear what did not succeed, as a person continues a run."""
        tasks = [task for task, state in self.airflow.states(self.run).items() if state not in ("success", "running")]
        log.info("continued: %s", tasks)
        self.airflow.clear(self.run, *tasks)

    def finish(self) -> None:
        """Continue the run until it has moved the namespace."""
        for _ in range(3):
            if self.is_finished():
                return
            self.resume()
        assert self.is_finished(), self.problems()

    def is_finished(self) -> bool:
        """Wait for the end. With a single task cleared in a run marked as failed, success means only that task."""
        state, states = self.end(), self.airflow.states(self.run)
        return state == "success" and all(states[task] == "success" for task in TASKS[TASKS.index("cut_over") : -1])

    def end(self, seconds: float = 300) -> str:
        """Wait until the run is over and nothing works for it."""
        wait_until(lambda: self.is_over() and not self.airflow.works(), seconds, "the run is over")
        state = self.airflow.run_state(self.run)
        log.info("%s: %s", state, self.problems())
        return state

    def problems(self) -> dict[str, str]:
        failed = [task for task in self.airflow.stack.tasks(DAG, self.run) if task["state"] == "failed"]
        return {
            task["task_id"]: self.airflow.stack.log(DAG, self.run, task["task_id"], task["try_number"])[-700:]
            for task in failed
        }

    def migrate(self, name: str, *options: str) -> subprocess.Popen[str]:
        """The same namespace from another Airflow home."""
        urls = (self.bench.by_others.url, self.bench.green.admin_url)
        return self.start_command(name, "migrate", *urls, "--namespaces", str(self.name), "--yes", *options)

    def command(self, *words: str) -> tuple[str, int]:
        """What a command beside the run says, and its exit code."""
        process = self.start_command("beside", *words)
        out, _ = process.communicate(timeout=COMMAND_SECONDS)
        return out, process.returncode

    def start_command(self, name: str, *words: str) -> subprocess.Popen[str]:
        """Start a command; `give_up` ends it."""
        self._commands.append(process := command(self.folder / name, *words))
        return process
