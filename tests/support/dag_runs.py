"""Runs of DAGs that a test makes, and what a run left: the states of its tasks, its report, its asset events."""

from __future__ import annotations

import os
from typing import Any

from pulsar_fleet.ledger.artefacts import Artefacts

BLUE_TO_GREEN = {"blue": "pulsar_blue", "green": "pulsar_green"}
"""What a person fills in: the form of a migration only proposes it."""


def run_dag(dag: Any) -> Any:
    """Store a DAG of a test, as the DAG processor does, and run it in this process; returns the finished run."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    bag = DagBag(dag_folder=os.devnull, bundle_name=dag.dag_id)
    bag.bag_dag(dag)
    with create_session() as session:
        session.merge(DagBundleModel(name=dag.dag_id))
    sync_bag_to_db(bag, bundle_name=dag.dag_id, bundle_version=None)
    return dag.test()


def run_again(dag: Any, run: Any) -> Any:
    """Run all its tasks again, as after a clear: the run keeps its id, and so its records."""
    again = dag.test(logical_date=run.logical_date, run_after=run.run_after)
    assert again.run_id == run.run_id
    return again


def states(run: Any) -> dict[str, str]:
    """Task id → state of a finished run."""
    return {instance.task_id: str(instance.state) for instance in run.get_task_instances()}


def announced(run: Any) -> list[str]:
    """Names of the assets that the run announced."""
    return list(asset_events(run))


def asset_events(run: Any) -> dict[str, Any]:
    """Name of each asset that the run announced → the extra of its event."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetModel.name, AssetEvent.extra).join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
        rows = session.execute(query.where(AssetEvent.source_run_id == run.run_id))
        return {name: dict(extra) for name, extra in rows}


def report(run: Any) -> str:
    """The report that the run left."""
    return (Artefacts.open().folder(f"{run.dag_id}/{run.run_id}") / "report.md").read_text()
