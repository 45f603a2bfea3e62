"""What a DAG file costs to parse while both cores are busy, compared with an empty DAG file.

As in Airflow's DAG processor, each file is parsed in a process of its own, forked after the import of Airflow's SDK and
of the `airflow.…` modules that the file names. The time of a parse is wall time; a busy machine makes it longer than
its CPU time, which is what the file can be blamed for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.bench.busy_cores import busy

DAGS = Path(__file__).parents[2] / "dags"
EMPTY = "from airflow.sdk import dag\n\n\n@dag(schedule=None)\ndef empty():\n    pass\n\n\nempty()\n"
CPU_SECONDS = 0.3
MEASURE = """
import importlib, json, os, sys, time
from pathlib import Path

from tests.bench.busy_cores import busy
import airflow.sdk
airflow.sdk.dag
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.file import iter_airflow_imports

def parse(file):
    wall, cpu = time.monotonic(), time.process_time()
    bag = DagBag(dag_folder=file, bundle_path=str(Path(file).parent), bundle_name="bench")
    assert not bag.import_errors, bag.import_errors
    parsed, (dag,) = time.process_time(), bag.dags.values()
    DagSerialization.to_dict(dag)
    return {"wall": time.monotonic() - wall, "parse": parsed - cpu, "serialise": time.process_time() - parsed}

for file in sys.argv[1:]:
    for module in iter_airflow_imports(file):
        importlib.import_module(module)
    sys.stdout.flush()
    if not os.fork():
        print("RESULT " + json.dumps({"file": file, **parse(file)}), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_parsing(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text(EMPTY)
    files = [empty, *sorted(DAGS.glob("*.py"))]
    with busy(os.cpu_count() or 1):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", MEASURE, *map(str, files)],
            capture_output=True,
            text=True,
            check=True,
        )
    results = [
        json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT ")
    ]
    assert [Path(result["file"]) for result in results] == files
    floor = results[0]
    print("\nCPU-seconds:                parse  above floor  serialise     wall")
    for result in results:
        more = result["parse"] - floor["parse"]
        print(
            f"{Path(result['file']).name:26}{result['parse']:7.3f}{more:+13.3f}{result['serialise']:11.3f}"
            f"{result['wall']:9.3f}"
        )
    slow = [result["file"] for result in results if result["parse"] > CPU_SECONDS]
    assert not slow
