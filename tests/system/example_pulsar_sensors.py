"""### Wait for a cluster

Sensors wait with a worker slot, or in the triggerer with `deferrable=True`.
"""

from __future__ import annotations

from airflow.sdk import dag

from pulsar_fleet.airflow import (
    NamespacePhaseSensor,
    PulsarBacklogSensor,
    PulsarReplicationSensor,
    PulsarSubscriptionSensor,
)

TOPIC = "persistent://examples/airflow/invoices"


# [START sensors]
@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__)
def example_pulsar_sensors():
    PulsarSubscriptionSensor(
        task_id="application_started",
        topic=TOPIC,
        subscription="warehouse",
        deferrable=True,
        poke_interval=10,
        timeout=600,
    ) >> PulsarBacklogSensor(
        task_id="drained", topic=TOPIC, subscription="warehouse", at_most=0, deferrable=True, timeout=600
    )
    PulsarReplicationSensor(
        task_id="replicated",
        namespace="examples/airflow",
        to_cluster="green",
        at_most=100,
        poke_interval=5,
        timeout=600,
    )
    NamespacePhaseSensor(
        task_id="migrated", namespace="examples/airflow", phase="finished", poke_interval=5, timeout=600
    )


example_pulsar_sensors()
# [END sensors]
