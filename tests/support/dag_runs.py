"""What a finished run left: the states of its tasks, its report, and the assets that it announced."""

from __future__ import annotations

from typing import Any

from pulsar_fleet.ledger.artefacts import Artefacts


def states(run: Any) -> dict[str, str]:
    """Task id → state of a finished run."""
    return {instance.task_id: str(instance.state) for instance in run.get_task_instances()}


def announced(run: Any) -> list[str]:
    """Names of the assets that the run announced."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetModel.name).join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
        return list(session.scalars(query.where(AssetEvent.source_run_id == run.run_id)))


def report(run: Any) -> str:
    """The report that the run left."""
    return (Artefacts.open().folder(f"{run.dag_id}/{run.run_id}") / "report.md").read_text()
