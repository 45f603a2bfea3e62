"""### Read a topic to its end

The owner of a terminated topic publishes no more: when the subscription has drained, nothing is missing.
"""

from __future__ import annotations

from airflow.sdk import dag

from pulsar_fleet.airflow import PulsarBacklogSensor, PulsarTopicTerminatedSensor

TOPIC = "persistent://examples/airflow/closing"


# [START terminated]
@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__)
def example_pulsar_terminated():
    PulsarTopicTerminatedSensor(
        task_id="terminated", topic=TOPIC, deferrable=True, poke_interval=5, timeout=600
    ) >> PulsarBacklogSensor(
        task_id="drained", topic=TOPIC, subscription="warehouse", at_most=0, poke_interval=5, timeout=600
    )


example_pulsar_terminated()
# [END terminated]
