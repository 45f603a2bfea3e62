"""The comparison on a Spark cluster of its own: a master and two workers as processes, as on separate machines."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyspark
import pytest
from tests.dags.test_runs import FORGOTTEN, SIDES, Play, make_pair

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import FOLDER, REQUEST, VERDICT, verify_in_process
from pulsar_sandbox.sandbox.guarded import GuardedProcess

START_SECONDS = 150
CLASSES = "org.apache.spark.deploy"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class SparkCluster:
    """Where the master takes jobs, and what its page says."""

    def __init__(self) -> None:
        self.port, self.page = free_port(), free_port()

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


@pytest.fixture
def spark_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    """A standalone cluster with two workers of one core; it ends with the test, however that ends."""
    home = Path(pyspark.__file__).parent
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_DAEMON_MEMORY", "256m")
    cluster = SparkCluster()
    run = [str(home / "bin" / "spark-class")]
    with ExitStack() as ending:

        def start(name: str, *words: object) -> None:
            process = GuardedProcess(tmp_path / name)
            ending.callback(process.stop)
            process.start([*run, *map(str, words)])

        start(
            "master",
            f"{CLASSES}.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            cluster.port,
            "--webui-port",
            cluster.page,
        )
        cluster.wait(lambda state: state["status"] == "ALIVE")
        for number in range(2):
            place = (
                "--cores",
                1,
                "--memory",
                "1g",
                "--work-dir",
                tmp_path / f"work-{number}",
                "--webui-port",
                free_port(),
            )
            start(f"worker-{number}", f"{CLASSES}.worker.Worker", *place, f"spark://127.0.0.1:{cluster.port}")
        cluster.wait(lambda state: state["aliveworkers"] == 2)
        yield cluster


@pytest.mark.long
def test_a_job_on_a_cluster_gives_the_verdict_of_this_process(
    play: Play,
    spark_cluster: SparkCluster,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = new_namespace()
    make_pair(TopicName(name, "events"), blue, green, leave_out=FORGOTTEN)
    master = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": spark_cluster.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(master))
    run = play("verify_clusters", **SIDES, namespaces=[str(name)])
    folder = Path(str(Artefacts.open().folder(f"{run.dag_id}/{run.run_id}")))
    request = VerifyRequest.from_bytes((folder / FOLDER / REQUEST).read_bytes())

    async def here() -> Verification:
        async with AdminClient(blue) as source, AdminClient(green) as target:
            return await verify_in_process(source, target, request)

    on_cluster = Verification.from_bytes((folder / FOLDER / VERDICT).read_bytes())
    assert on_cluster == asyncio.run(here())
    assert on_cluster.verdict is Verdict.DIFFERENT
    assert [(app["name"], app["state"]) for app in spark_cluster.state()["completedapps"]] == [
        ("verify-messages", "FINISHED")
    ]
