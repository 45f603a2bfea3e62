"""### Start another DAG when there is work

The sensor waits in the triggerer until the subscription has a backlog; then the other DAG runs.
"""

from __future__ import annotations

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import dag

from pulsar_fleet.airflow import PulsarBacklogSensor


# [START trigger_dag_run]
@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__)
def example_pulsar_trigger_dag_run():
    PulsarBacklogSensor(
        task_id="has_work",
        topic="persistent://examples/airflow/invoices",
        subscription="warehouse",
        at_least=1,
        deferrable=True,
        poke_interval=5,
        timeout=600,
    ) >> TriggerDagRunOperator(
        task_id="start",
        trigger_dag_id="example_pulsar_publish_and_consume",
        # A retry does not start a second run.
        trigger_run_id="{{ run_id }}",
        skip_when_already_exists=True,
        conf={"backlog": "{{ ti.xcom_pull('has_work') }}"},
    )


example_pulsar_trigger_dag_run()
# [END trigger_dag_run]
