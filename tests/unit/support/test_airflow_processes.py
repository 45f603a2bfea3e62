"""An orphan that the end of a test does not see would never end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.support.airflow_processes import AirflowProcesses, end_processes

from pulsar_sandbox.sandbox.guarded import GuardedProcess

# A scheduler, its executor and a task of that, which overwrite their environment; the task leads a process group.
FAMILY = """
import os, sys, time
from setproctitle import setproctitle
for title in ("LocalExecutor: <idle>", "0192"):
    if os.fork():
        time.sleep(100)
    setproctitle(f"airflow worker -- {title}")
os.setpgid(0, 0)
open(sys.argv[1], "w").close()
time.sleep(100)
"""


def test_orphans_of_a_killed_process_are_seen_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    guarded, ready = GuardedProcess(tmp_path / "scheduler"), tmp_path / "ready"
    guarded.start([sys.executable, "-c", FAMILY, str(ready)])
    while not ready.exists():
        time.sleep(0.05)
    processes = AirflowProcesses(tmp_path)
    family, working = processes.started(), processes.working()
    guarded.kill()
    guarded.stop()
    orphans = processes.started()
    end_processes(orphans)
    # The guard, the scheduler that is killed, its executor and the task.
    assert (len(family), len(orphans), processes.started()) == (4, 2, [])
    assert working == ["airflow worker -- 0192"]
    assert psutil.Process() not in family
