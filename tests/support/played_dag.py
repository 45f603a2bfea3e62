"""Run one DAG in this process, as `dag.test()` does: `python -m tests.support.played_dag DAG_ID CONF`.

It prints, as JSON in its last line, the states of the tasks and the report. A process of its own has an environment of
its own, such as one in which brokers cannot be reached past their proxy.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DAGS = Path(__file__).parents[2] / "dags"


@dataclass(frozen=True)
class Played:
    """What a finished run left."""

    states: Mapping[str, str]
    report: str
    output: str


def play(dag_id: str, environment: Mapping[str, str], **conf: Any) -> Played:
    """Run a DAG with connections and settings in its environment."""
    command = [sys.executable, "-m", "tests.support.played_dag", dag_id, json.dumps(conf)]
    done = subprocess.run(
        command, env=dict(environment), cwd=DAGS.parent, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    last = json.loads(done.stdout.splitlines()[-1])
    return Played(last["states"], last["report"], done.stdout + done.stderr)


def main() -> None:
    """Parse the DAGs as the DAG processor does, and run one."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session

    from pulsar_fleet.ledger.artefacts import Artefacts

    dag_id, conf = sys.argv[1], json.loads(sys.argv[2])
    initdb()
    bag = DagBag(dag_folder=str(DAGS / f"{dag_id}.py"), bundle_name="tests", bundle_path=DAGS)
    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
    sync_bag_to_db(bag, bundle_name="tests", bundle_version=None)
    run = bag.dags[dag_id].test(run_conf=conf)
    states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
    report = Artefacts.open().find(f"{run.dag_id}/{run.run_id}", "report.md")
    text = Artefacts.open().read(report).decode() if report else ""
    sys.stdout.write(f"\n{json.dumps({'states': states, 'report': text})}\n")


if __name__ == "__main__":
    main()
