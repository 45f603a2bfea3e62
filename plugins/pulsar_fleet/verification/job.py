"""What the Spark jobs of a verification have in common: two URIs, a log, and an exit status."""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pulsar_fleet
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.messages.credentials import Side, credentials_environment


def run_job(arguments: list[str], what: str, compare: Callable[[str, str], None]) -> None:
    """Call `compare` with the URIs of request and result; a failure of its own ends the job with status 1.

    :param what: is compared, such as "messages".
    """
    parser = argparse.ArgumentParser(description=f"Compare the {what} of two Pulsar clusters.")
    parser.add_argument("--request", required=True, help="URI of the request document")
    parser.add_argument("--result", required=True, help="URI under which the result is written")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        compare(given.request, given.result)
    except (FleetError, OSError) as error:
        raise SystemExit(f"The comparison was not carried out: {error}") from error


JOB_SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "WARN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
"""Spark settings for the job. Its work is done in Python and few rows reach Spark, so compiling is what costs: on two
busy cores these settings took a run of 600 entries from 90 to 48 CPU-seconds."""

_ALWAYS = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT = frozenset({"airflow", "sandbox", "demo"})


def build_package_zip(folder: Path) -> Path:
    """Write the package for `py_files` into `folder`, named by its content: the same code gives the same file.

    A second call finds the file and writes nothing.
    """
    content = BytesIO()
    root = Path(pulsar_fleet.__file__).parent
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(root.rglob("*.py")):
            inside = module.relative_to(root)
            if inside.parts[0] not in _LEFT_OUT:
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
    """Environment variables for `spark-submit` by which driver and workers run our interpreter."""
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def job_environment(source: ClusterConnection, target: ClusterConnection) -> dict[str, str]:
    """The interpreter, and the credentials of two clusters. **Holds secrets.**"""
    return {
        **interpreter_environment(),
        **credentials_environment(Side.SOURCE, source),
        **credentials_environment(Side.TARGET, target),
    }
