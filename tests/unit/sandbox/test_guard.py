"""The guard, with real processes: `sleep` instead of a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_sandbox.sandbox.guarded import GuardedProcess, guard_command

SLEEP = ["sleep", "300"]
OWNER = textwrap.dedent("""
    import os, subprocess, sys, time
    from pathlib import Path
    from pulsar_sandbox.sandbox.guarded import GuardedProcess
    process = GuardedProcess(Path(sys.argv[1]))
    process.start(["sleep", "300"])
    if "fork" in sys.argv and os.fork() == 0:
        time.sleep(300)
    if "release" in sys.argv:
        process.release()
        os._exit(0)
    print("started", flush=True)
    time.sleep(300)
""")


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def process(tmp_path: Path) -> Iterator[GuardedProcess]:
    guarded = GuardedProcess(tmp_path / "sleeper")
    yield guarded
    guarded.stop()


def running_pid(process: GuardedProcess) -> int:
    pid = process.pid
    assert pid is not None
    return pid


def test_a_started_process_is_found_again_by_its_folder(process: GuardedProcess) -> None:
    process.start(SLEEP)
    assert GuardedProcess(process.folder).pid == process.pid


def test_a_killed_process_is_gone_while_its_guard_stays(process: GuardedProcess) -> None:
    process.start(SLEEP)
    pid = running_pid(process)
    process.kill()
    assert (gone(pid), process.pid, process.guarded) == (True, None, True)


def test_a_killed_process_is_started_again_by_whoever_knows_its_folder(process: GuardedProcess) -> None:
    process.start(SLEEP)
    before = running_pid(process)
    process.kill()
    GuardedProcess(process.folder).start_again()
    assert running_pid(process) != before


def test_starting_a_running_process_again_does_nothing(process: GuardedProcess) -> None:
    process.start(SLEEP)
    before = running_pid(process)
    process.start_again()
    assert process.pid == before


def test_a_process_that_ends_at_once_is_seen_as_ended(process: GuardedProcess) -> None:
    process.start(["sh", "-c", "echo cannot start; exit 3"])
    assert eventually(lambda: process.pid is None)
    assert process.last_words() == "cannot start"


def test_a_stopped_process_leaves_neither_guard_nor_child(process: GuardedProcess) -> None:
    process.start(SLEEP)
    pid = running_pid(process)
    process.stop()
    assert (gone(pid), process.guarded) == (True, False)


def test_a_process_without_guard_cannot_be_started_again(process: GuardedProcess) -> None:
    process.start(SLEEP)
    process.stop()
    with pytest.raises(PreconditionFailed, match="its sandbox is stopped"):
        process.start_again()


def test_a_recycled_process_id_is_not_taken_for_the_guard(process: GuardedProcess) -> None:
    process.folder.mkdir()
    (process.folder / "guard.pid").write_text(str(os.getpid()))
    (process.folder / "jvm.pid").write_text(str(os.getpid()))
    assert process.pid is None


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_process_dies_with_its_owner(tmp_path: Path, death: signal.Signals) -> None:
    command = [sys.executable, "-c", OWNER, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        process = GuardedProcess(tmp_path)
        pid = running_pid(process)
        owner.send_signal(death)
    assert eventually(lambda: gone(pid) and not process.guarded)


def test_the_process_dies_with_its_owner_although_a_fork_of_it_lives(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, tmp_path, "fork"], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        forked = psutil.Process(owner.pid).children()
        process = GuardedProcess(tmp_path)
        pid = running_pid(process)
        owner.kill()
        owner.wait()
        assert eventually(lambda: gone(pid))
        for child in forked:
            if child.is_running():
                child.kill()


def test_a_released_process_outlives_its_owner_until_it_is_stopped(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OWNER, tmp_path, "release"], check=True)
    process = GuardedProcess(tmp_path)
    time.sleep(1.5)  # longer than the guard's check for orphans
    pid = running_pid(process)
    process.stop()
    assert gone(pid)


def test_a_command_that_runs_once_hands_its_exit_code_on(tmp_path: Path) -> None:
    command = guard_command(tmp_path / "once.pid", ["sh", "-c", "exit 7"], once=True)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as guard:
        assert guard.wait() == 7
