"""Archives of the classes that Pulsar and Spark load: with them a broker starts in two thirds of the CPU time, a Spark
session in half.

`python -m tests.support.class_archives` writes them; as a plug-in of pytest this module lets every JVM use them. A
JVM takes an archive only if it fits its own version and class path, and does without it otherwise.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.verification.job import JOB_SETTINGS, interpreter_environment
from pulsar_sandbox import Sandbox
from pulsar_sandbox.sandbox.java import find_java
from pulsar_sandbox.workload import EstateSpec, build_estate

FOLDER = Path(__file__).parents[2] / ".state" / "classes"
PULSAR, SPARK = FOLDER / "pulsar.jsa", FOLDER / "spark.jsa"

# Only the first compiler, and no warning about an archive that is another program's.
_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
_JOB = """
from pyspark.sql import SparkSession, functions as F
session = SparkSession.builder.getOrCreate()
numbers = session.createDataFrame([(number % 3, number) for number in range(9)], "part long, number long")
numbers.groupBy("part").agg(F.max("number")).orderBy("part").collect()
numbers.rdd.map(str).collect()
"""


def pytest_configure() -> None:
    """Set the options of every JVM that the tests start, by the variables that Java and Spark read."""
    os.environ["JAVA_TOOL_OPTIONS"] = f"{_OPTIONS} -XX:SharedArchiveFile={PULSAR}"
    for variable in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ[variable] = f"-XX:SharedArchiveFile={SPARK}"


def archive_pulsar() -> None:
    """Start a cluster, use it, and have its JVM write down what it loaded."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Sandbox.start(Path(folder) / "sandbox", clusters=("blue",)) as running,
    ):
        cluster = running["blue"]
        blue = ClusterConnection(name="blue", admin_url=cluster.admin_url, service_url=cluster.service_url)
        asyncio.run(build_estate(blue, EstateSpec(live="acme/orders", tenants=1, namespaces_per_tenant=1, history=10)))
        jcmd = Path(find_java().path).resolve().with_name("jcmd")
        command = [str(jcmd), str(cluster.pids[0]), "VM.cds", "dynamic_dump", str(PULSAR)]
        subprocess.run(command, check=True, capture_output=True)


def archive_spark() -> None:
    """Submit a job whose driver writes down what it loaded when it ends."""
    submit = str(Path(sys.executable).with_name("spark-submit"))
    settings = [part for setting in JOB_SETTINGS.items() for part in ("--conf", "=".join(setting))]
    options = {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={SPARK}", "JAVA_TOOL_OPTIONS": "-Xlog:disable"}
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.py"
        job.write_text(_JOB)
        command = [submit, "--master", "local[2]", *settings, str(job)]
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, **interpreter_environment(), **options}
        )


def main() -> None:
    """Write both, at the same time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:+RecordDynamicDumpInfo -Xlog:disable"
    with ThreadPoolExecutor() as threads:
        for written in (threads.submit(archive_pulsar), threads.submit(archive_spark)):
            written.result()


if __name__ == "__main__":
    main()
