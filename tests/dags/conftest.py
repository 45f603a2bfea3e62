"""A real Airflow metadata database for `dag.test()`, and the DAGs of this repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection

DAGS = Path(__file__).parents[2] / "dags"
Play = Callable[..., Any]


@pytest.fixture(scope="session")
def dag_bag() -> Any:
    """Every DAG file, parsed as the DAG processor does, and stored so that runs can be made of them."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session

    initdb()
    bag = DagBag(dag_folder=str(DAGS), bundle_name="tests", bundle_path=DAGS)
    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
    sync_bag_to_db(bag, bundle_name="tests", bundle_version=None)
    return bag


@pytest.fixture
def play(
    dag_bag: Any, blue: ClusterConnection, green: ClusterConnection, records: Path, monkeypatch: pytest.MonkeyPatch
) -> Play:
    """Run a DAG in this process against the real clusters; returns the finished run."""
    for cluster in (blue, green):
        monkeypatch.setenv(
            f"AIRFLOW_CONN_PULSAR_{cluster.name.upper()}",
            json.dumps(
                {"conn_type": "pulsar", "host": cluster.admin_url, "extra": {"service_url": cluster.service_url}}
            ),
        )
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))

    def run(dag_id: str, **conf: Any) -> Any:
        dag = dag_bag.dags[dag_id]
        owners = (dag, *dag.tasks)
        # What the form proposes are the names of the connections above.
        proposed = ((name, dag.params.get_param(name)) for name in dag.params)
        conf = {name: param.schema["examples"][0] for name, param in proposed if "examples" in param.schema} | conf
        declared = [deepcopy(owner.params) for owner in owners]
        try:
            return dag.test(run_conf=conf)
        finally:
            # A run in this process leaves its configuration as the defaults of the next.
            for owner, params in zip(owners, declared, strict=True):
                owner.params = params

    return run
