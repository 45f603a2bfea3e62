"""What a DAG file costs to parse, beside importing Airflow's SDK, which every DAG file must do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

DAGS = Path(__file__).parents[2] / "dags"
MEASURE = """
import json, sys, time
began = time.process_time()
import airflow.sdk
airflow.sdk.dag
floor = time.process_time() - began
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1], bundle_path=sys.argv[1], bundle_name="bench")
assert not bag.import_errors, bag.import_errors
print("RESULT " + json.dumps({"floor": floor, **{s.file: s.duration.total_seconds() for s in bag.dagbag_stats}}))
"""


def test_parsing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURE, str(DAGS)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    seconds = json.loads(line.removeprefix("RESULT "))
    floor = seconds.pop("floor")
    print(f"\nimport airflow.sdk        {floor:6.3f} CPU-s  (floor)")
    for file, wall in seconds.items():
        print(f"{Path(file).name:25} {wall:6.3f} s      {wall / floor:5.2f} of the floor")
    assert len(seconds) == len(list(DAGS.glob("*.py")))
