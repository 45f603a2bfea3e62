"""A Spark cluster of its own: a master and two workers as processes, as on separate machines."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyspark
import pytest

from pulsar_sandbox.sandbox.guarded import GuardedProcess

START_SECONDS = 150
CLASSES = "org.apache.spark.deploy"
HOME = Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class SparkCluster:
    """Where the master takes jobs, and what its page says."""

    def __init__(self) -> None:
        self.port, self.page = free_port(), free_port()

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def state(self) -> dict[str, Any]:
        return dict(httpx.get(f"http://127.0.0.1:{self.page}/json/").json())

    def wait(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                if holds(self.state()):
                    return
            except (httpx.TransportError, ValueError):
                pass
            time.sleep(0.5)
        raise AssertionError(f"The Spark cluster did not come to it in {START_SECONDS} s.")

    def kill_executor(self, chance: random.Random) -> None:
        """One of those that work for the running application, with the Python workers that hang on it."""
        (application,) = self.state()["activeapps"]
        executors = [process for process in psutil.process_iter() if _works_for(process, application["id"])]
        assert executors
        chance.choice(executors).kill()


def _works_for(process: psutil.Process, application: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:  # it has just ended
        return False
    return application in words and any("CoarseGrainedExecutorBackend" in word for word in words)


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A master and two workers of one core."""
    settings = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    cluster = SparkCluster()
    run = [str(HOME / "bin" / "spark-class")]
    with pytest.MonkeyPatch.context() as environment, ExitStack() as ending:
        for name, value in settings.items():
            environment.setenv(name, value)

        def start(name: str, *words: object) -> None:
            process = GuardedProcess(folder / name)
            ending.callback(process.stop)
            process.start([*run, *map(str, words)])

        ports = ("--port", cluster.port, "--webui-port", cluster.page)
        start("master", f"{CLASSES}.master.Master", "--host", "127.0.0.1", *ports)
        cluster.wait(lambda state: state["status"] == "ALIVE")
        for number in range(2):
            place = ("--work-dir", folder / f"work-{number}", "--webui-port", free_port())
            size = ("--cores", 1, "--memory", "1g")
            start(f"worker-{number}", f"{CLASSES}.worker.Worker", *size, *place, cluster.master)
        cluster.wait(lambda state: state["aliveworkers"] == 2)
        yield cluster
