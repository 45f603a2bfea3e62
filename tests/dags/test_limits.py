"""What Airflow does with a task that fails or lasts too long; no cluster."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import DAG
from tests.support.dag_runs import run_dag

from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.cluster.errors import FleetError, NotAllowed, PreconditionFailed, Unavailable
from pulsar_fleet.ledger.run import Run

pytestmark = pytest.mark.usefixtures("dag_bag", "records")

ERRORS: dict[type[Exception], int] = {Unavailable: 2, KeyError: 2, PreconditionFailed: 1, NotAllowed: 1}
"""Error → how often a task with one retry is tried."""
SOON = {**DEFAULT_ARGS, "retries": 1, "retry_delay": timedelta(0)}


def test_only_what_can_heal_is_retried_and_the_reason_is_stored() -> None:
    with DAG("retried", schedule=None, default_args=SOON) as dag:
        for kind in ERRORS:

            @task(task_id=kind.__name__)
            def fail(kind: type[Exception] = kind) -> None:
                raise kind("the sentence")

            fail()
    run = run_dag(dag)
    assert {instance.task_id: instance.try_number for instance in run.get_task_instances()} == {
        kind.__name__: tries for kind, tries in ERRORS.items()
    }
    stored = Run.open(f"retried/{run.run_id}")
    assert {kind: stored.stored(f"failures/{kind.__name__}.json") for kind in ERRORS} == {
        kind: "the sentence" if issubclass(kind, FleetError) else "KeyError: 'the sentence'" for kind in ERRORS
    }
