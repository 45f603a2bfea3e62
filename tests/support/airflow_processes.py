"""The processes of an Airflow, also those whose parent was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

END_SECONDS = 20
WORKER = "airflow worker -- "


class AirflowProcesses:
    """What an Airflow that was started by a guard has started.

    A guard leads a session and Airflow begins none, so a session tells whose process an orphan is: tasks and executors
    overwrite their environment, and each task leads a process group.
    """

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._sessions: set[int] = set()
        self.note_sessions()

    def note_sessions(self) -> None:
        """Find the sessions of the guards that run; again after another guard was started."""
        sessions = {_session(process.pid) for process in self._with_home()}
        self._sessions |= {session for session in sessions if session not in (None, os.getsid(0))}

    def started(self) -> list[psutil.Process]:
        """Every process that runs."""
        return [process for process in psutil.process_iter() if _session(process.pid) in self._sessions]

    def working(self) -> list[str]:
        """Titles of the processes that execute a task, or are about to: an executor names the task first."""
        titles = [_title(process) for process in self.started()]
        return [title for title in titles if title.startswith(WORKER) and not title.endswith("<idle>")]

    def schedulers(self) -> list[psutil.Process]:
        """The processes of the scheduler, without what they started."""
        return [process for process in self._with_home() if _is_scheduler(process)]

    def _with_home(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("AIRFLOW_HOME") == self._home:
                yield process


def task_processes() -> dict[str, int]:
    """Title of each process that executes a task → its process id."""
    pids = {}
    for process in psutil.process_iter():
        title = _title(process)
        if title.startswith(WORKER) and "Executor" not in title:
            pids[title] = process.pid
    return pids


def end_processes(processes: Sequence[psutil.Process]) -> None:
    """Kill -9 those that still run, and require that they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            # It compares the time of the start: a process id may have been given to another.
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=END_SECONDS)
    running = [process for process in alive if _runs(process)]
    assert not running, f"still running: {running}"


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _session(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def _title(process: psutil.Process) -> str:
    return " ".join(_words(process)).strip()


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []


def _is_scheduler(process: psutil.Process) -> bool:
    words = _words(process)
    return words[-1:] == ["scheduler"] and "--pid-file" not in words
