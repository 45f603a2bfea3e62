"""### Publish what happens to tasks

A notifier publishes a message for each event of a task or a DAG run.
"""

from __future__ import annotations

from airflow.sdk import dag, task

from pulsar_fleet.airflow import PulsarNotifier

# [START notifier]
ON_FAILURE = PulsarNotifier(
    topic="persistent://examples/airflow/failures", text="{{ ti.task_id }} of {{ dag.dag_id }} failed: look at its log."
)


@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__, default_args={"on_failure_callback": ON_FAILURE})
def example_pulsar_notifier():
    @task
    def fail() -> None:
        raise ValueError("This task fails, so that its notifier publishes.")

    fail()


example_pulsar_notifier()
# [END notifier]
