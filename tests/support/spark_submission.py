"""Spark jobs, submitted as an operator would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.verification.job import JOB_SETTINGS, build_package_zip, job_environment


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
