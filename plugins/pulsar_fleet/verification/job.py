"""The entry point of Spark jobs, their settings and environment, and the zip of the package."""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar_fleet
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.messages.credentials import Side, credentials_environment

if TYPE_CHECKING:  # building the zip needs neither
    from pyspark.sql import SparkSession
    from upath import UPath

log = logging.getLogger(__name__)


def run_job(
    arguments: list[str],
    what: str,
    open_session: Callable[[], SparkSession],
    answer: Callable[[SparkSession, bytes, UPath], str],
) -> None:
    """Answer each request in one Spark session; exit with status 1 if a comparison cannot be carried out.

    :param what: the compared resources, such as "messages".
    :param answer: takes the content of a request, writes the result to the path and returns the text for the log.
    """
    from upath import UPath

    parser = argparse.ArgumentParser(description=f"Compare the {what} of Pulsar clusters.")
    parser.add_argument("--request", required=True, action="append", help="URI of a request document")
    parser.add_argument("--result", required=True, action="append", help="URI under which its result is written")
    options = parser.parse_args(arguments)
    if len(options.request) != len(options.result):
        parser.error("each --request needs a --result")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    session: SparkSession | None = None
    try:
        results = [UPath(result) for result in options.result]
        for result in results:
            result.unlink(missing_ok=True)  # a failure must not leave a stale result
        contents = [UPath(request).read_bytes() for request in options.request]
        session = open_session()
        # With it on, the default since Spark 4.2, columns that pass through a Python step can be wrong (apache/spark
        # 59582).
        session.conf.set(_COLUMNS_AS_INPUT, False)
        with _logged_progress(session):
            for content, result in zip(contents, results, strict=True):
                result.parent.mkdir(parents=True, exist_ok=True)
                log.info("%s", answer(session, content, result))
    except (FleetError, OSError) as error:
        raise SystemExit(f"The comparison was not carried out: {error}") from error
    finally:
        if session is not None:
            session.stop()


@contextmanager
def _logged_progress(session: SparkSession) -> Iterator[None]:
    """Say after 2 s, 6 s, 14 s and so on, then every minute, how many tasks of the running stages have ended."""
    tracker, ended = session.sparkContext.statusTracker(), threading.Event()

    def say() -> None:
        seconds = 2.0
        while not ended.wait(seconds):
            seconds = min(2 * seconds, 60.0)
            stages = [stage for id_ in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(id_))]
            if stages:
                done, tasks = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
                log.info("%d of %d Spark tasks have ended", done, tasks)

    saying = threading.Thread(target=say, daemon=True)
    saying.start()
    try:
        yield
    finally:
        ended.set()
        saying.join()


_COLUMNS_AS_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"

JOB_SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "WARN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
"""Spark settings for the job. Python does its work and few rows reach Spark, so most CPU goes into compilation: on two
busy cores these settings reduced a run of 600 entries from 90 to 48 CPU-seconds."""

_ALWAYS = (1980, 1, 1, 0, 0, 0)
_EXCLUDED = frozenset({"airflow"})


def build_package_zip(folder: Path) -> Path:
    """Write the package for `py_files` into `folder`; the name is a hash of the content, so equal code is one file.

    A second call writes nothing.
    """
    content = BytesIO()
    root = Path(pulsar_fleet.__file__).parent
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(root.rglob("*.py")):
            inside = module.relative_to(root)
            if inside.parts[0] not in _EXCLUDED:
                archive.writestr(zipfile.ZipInfo(f"{root.name}/{inside.as_posix()}", _ALWAYS), module.read_bytes())
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    path = folder / f"{root.name}-{digest[:12]}.zip"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(content.getvalue())
        unfinished.replace(path)
    return path


def interpreter_environment() -> dict[str, str]:
    """Environment variables for `spark-submit`, so that driver and workers use this Python interpreter."""
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def job_environment(source: ClusterConnection, target: ClusterConnection) -> dict[str, str]:
    """The interpreter and the credentials of two clusters. **Holds secrets.**"""
    return {
        **interpreter_environment(),
        **credentials_environment(Side.SOURCE, source),
        **credentials_environment(Side.TARGET, target),
    }
