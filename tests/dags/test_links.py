"""The links that Airflow shows for the tasks of a run: its report as soon as it is stored, and the Fleet page."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.dags.conftest import Play

pytestmark = pytest.mark.onboarding


def task_of(dag_id: str, task_id: str) -> Any:
    """A task as Airflow's server reads it from the database, with the links of plugins."""
    from airflow.models.serialized_dag import SerializedDagModel

    return SerializedDagModel.get(dag_id).dag.get_task(task_id)


def links(run: Any) -> dict[str, dict[str, str]]:
    """Task id → name → URL, without the links that Airflow does not show."""
    shown = {}
    for instance in run.get_task_instances():
        task = task_of(run.dag_id, instance.task_id)
        urls = {name: task.get_extra_links(instance, name) for name in task.extra_links}
        shown[instance.task_id] = {name: url for name, url in urls.items() if url}
    return shown


def test_every_task_of_a_refused_run_leads_to_its_report_and_to_fleet(play: Play) -> None:
    run = play("reconcile_policies", mod="repair")
    address = f"/pulsar-fleet/report?{urlencode({'run': f'reconcile_policies/{run.run_id}'})}"
    tasks = ("read_request", "find_drift", "repair", "write_report")
    assert links(run) == {task: {"Report": address, "Fleet": "/pulsar-fleet/"} for task in tasks}


def test_behind_a_proxy_the_links_have_its_path(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play("reconcile_policies", mod="repair")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://ops.example/airflow/")
    assert links(run)["read_request"]["Fleet"] == "/airflow/pulsar-fleet/"


def test_a_run_without_a_report_has_no_link_to_one(play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = play("reconcile_policies", mod="repair")
    monkeypatch.setenv("PULSAR_FLEET_ARTEFACTS", str(tmp_path / "without-reports"))
    shown = links(run)
    assert {name for urls in shown.values() for name in urls} == {"Fleet"}


def test_an_unreadable_store_hides_the_report_only(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    run = play("reconcile_policies", mod="repair")
    monkeypatch.setenv("PULSAR_FLEET_ARTEFACTS", "nothing://reports")
    assert links(run)["write_report"] == {"Fleet": "/pulsar-fleet/"}


@pytest.mark.parametrize(
    ("dag_id", "task_id"),
    [
        ("verify_clusters", "freeze_bounds"),
        ("verify_clusters", "compare_messages"),
        ("migrate_namespaces", "wait_drained"),
    ],
)
def test_mapped_tasks_and_sensors_have_the_links(dag_bag: Any, dag_id: str, task_id: str) -> None:
    assert {"Report", "Fleet"} <= set(task_of(dag_id, task_id).extra_links)


def test_other_dags_get_no_link(dag_bag: Any) -> None:
    from airflow.providers.standard.decorators.python import _PythonDecoratedOperator
    from airflow.sdk import DAG, task
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG("of_a_user", schedule=None) as dag:
        task(task_of)("a", "b")
    (own,) = DagSerialization.from_dict(DagSerialization.to_dict(dag)).tasks
    assert (own.task_type, own.extra_links) == (_PythonDecoratedOperator.__name__, [])
