"""Spark jobs, submitted as an operator would."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pyspark

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.verification.job import JOB_SETTINGS, build_package_zip, job_environment

WAIT_SECONDS = 200


def submission(
    script: Path,
    arguments: list[str],
    source: ClusterConnection,
    target: ClusterConnection,
    folder: Path,
    *,
    master: str = "local[2]",
) -> tuple[list[str], dict[str, str]]:
    """Command and environment: the real spark-submit, the package as a zip."""
    package = build_package_zip(folder)
    spark = Path(sys.executable).with_name("spark-submit")
    options = ["--master", master, "--driver-memory", "1g", "--py-files", str(package)]
    configured = [part for setting in JOB_SETTINGS.items() for part in ("--conf", "=".join(setting))]
    environment = {**os.environ, **job_environment(source, target)}
    return [str(spark), *options, *configured, str(script), *arguments], environment


def submit(
    script: Path, arguments: list[str], source: ClusterConnection, target: ClusterConnection, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run the job to its end."""
    command, environment = submission(script, arguments, source, target, folder)
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )


class RunningJob:
    """One run of the job, in a process group of its own."""

    def __init__(
        self,
        script: Path,
        request: str,
        result: str,
        source: ClusterConnection,
        target: ClusterConnection,
        folder: Path,
        ended: ExitStack,
        *,
        master: str,
    ) -> None:
        command, environment = submission(
            script, ["--request", request, "--result", result], source, target, folder, master=master
        )
        environment |= {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
        }
        self.log = folder / f"job-{os.urandom(3).hex()}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        ended.callback(self._end_now)

    def until_reading(self, kept: Path) -> None:
        """Wait for the first range that was read as a whole."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not list(kept.glob("*.parquet")):
            assert self._process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def kill_driver(self) -> None:
        """With what it started: executors of a driver that is gone end by themselves, a little later."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def kill_executor(self, chance: random.Random) -> None:
        """One of them, with the Python workers that hang on it."""
        running = psutil.Process(self._process.pid).children(recursive=True)
        executors = [process for process in running if _is_executor(process)]
        assert executors
        chance.choice(executors).kill()

    def end(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait for its end."""
        return self._process.wait(seconds)

    def _end_now(self) -> None:
        with suppress(ProcessLookupError):
            self.kill_driver()


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False
