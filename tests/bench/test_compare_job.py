"""Wall time and memory of the Spark job that compares two stored snapshots, from its cold start on.

By default of 100,000 topics; PULSAR_FLEET_BENCH_SYNTHETIC_NAMESPACES=10000 makes it a million, and
PULSAR_FLEET_BENCH_SYNTHETIC_FOLDER keeps the snapshots for the next run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.bench.synthetic import DIFFERENT, NAMESPACES, TOPICS, reference

from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.store.reader import store_snapshot
from pulsar_fleet.verification.job import JOB_SETTINGS, build_package_zip, interpreter_environment
from pulsar_fleet.verification.snapshots.compare import CompareRequest, read_result

REPOSITORY = Path(__file__).parents[2]
JOB = REPOSITORY / "spark_jobs" / "compare_snapshots.py"
EMPTY = Snapshot(cluster="blue", began="", ended="", key_id="k")
LOOK_EVERY = 0.2
MB = 1 << 20


@pytest.mark.timeout(1_800)
def test_job(tmp_path: Path) -> None:
    folder = Path(os.environ.get("PULSAR_FLEET_BENCH_SYNTHETIC_FOLDER") or tmp_path / "estate")
    artefacts = Artefacts.open(str(folder))
    if artefacts.find("bench", f"{DIFFERENT[-1].name}/manifest.json") is None:
        _step("write", folder)
        _step("differ", folder)
    print(f"\n{NAMESPACES:,} namespaces × {TOPICS} topics on both sides; memory is the sum of all processes, at most")
    for name in ("floor", "compare"):
        seconds, megabytes = _step(name, folder)
        print(f"{name + ', one process':44} {seconds:7.2f} s wall  {megabytes:6,.0f} MB")
    sides = [store_snapshot(artefacts, "bench", EMPTY, name=f"empty-{number}") for number in range(2)]
    _job("job on nothing: the cold start alone", tmp_path, CompareRequest(source=sides[0], target=sides[1]), 0)
    request = CompareRequest(source=reference(artefacts, "blue"), target=reference(artefacts, "green"))
    _job("job, nothing differs", tmp_path, request, 0)
    for difference in DIFFERENT:
        namespaces = -(-NAMESPACES * difference.namespaces // 100)
        text = f"job, {difference.topics} topics in {difference.namespaces} % of namespaces differ"
        different = replace(request, target=reference(artefacts, difference.name))
        _job(text, tmp_path, different, namespaces * difference.topics)


def _step(name: str, folder: Path) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.synthetic", name, str(folder)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=True,
    )
    seconds, megabytes = done.stdout.split()
    return float(seconds), float(megabytes)


def _job(text: str, folder: Path, request: CompareRequest, expected: int) -> None:
    """Submit as an operator would, and look at all processes of the job while it runs."""
    request_path, answer, log = folder / "request.json", folder / "result.json", folder / "job.log"
    request_path.write_bytes(request.to_bytes())
    options = ["--master", "local[2]", "--driver-memory", "512m", "--py-files", str(build_package_zip(folder))]
    configured = [part for setting in JOB_SETTINGS.items() for part in ("--conf", "=".join(setting))]
    command = [str(Path(sys.executable).with_name("spark-submit")), *options, *configured, str(JOB)]
    began = time.monotonic()
    with log.open("wb") as output:
        job = subprocess.Popen(
            [*command, "--request", str(request_path), "--result", str(answer)],
            env={**os.environ, **interpreter_environment()},
            cwd=folder,
            stdout=output,
            stderr=output,
        )
        java, python = _watch(job)
    seconds = time.monotonic() - began
    assert job.returncode == 0, log.read_text()[-3_000:]
    comparison = read_result(str(answer))
    assert sum(comparison.differing.values()) == expected, json.dumps(comparison.to_json())[:3_000]
    print(f"{text:44} {seconds:7.2f} s wall  {java + python:6,.0f} MB: JVM {java:,.0f}, Python {python:,.0f}")


def _watch(job: subprocess.Popen[bytes]) -> tuple[float, float]:
    """The resident memory of the JVM and of all else, in MB, when both together were largest."""
    largest = (0.0, 0.0)
    whole = psutil.Process(job.pid)
    while job.poll() is None:
        memory = {True: 0.0, False: 0.0}
        for process in (whole, *_descendants(whole)):
            try:
                memory[process.name() == "java"] += process.memory_info().rss / MB
            except psutil.NoSuchProcess:
                continue
        largest = max(largest, (memory[True], memory[False]), key=sum)
        time.sleep(LOOK_EVERY)
    return largest


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
