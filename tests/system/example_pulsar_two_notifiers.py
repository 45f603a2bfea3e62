"""### Tell people by mail and programs by a topic

Notifiers of several providers stand side by side; an error of the first does not keep the second from its message.
"""

from __future__ import annotations

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import dag, task

from pulsar_fleet.airflow import PulsarNotifier

TOPIC = "persistent://examples/airflow/failures"


# [START two_notifiers]
@dag(
    schedule=None,
    tags=["pulsar", "example"],
    doc_md=__doc__,
    default_args={
        "on_failure_callback": [
            PulsarNotifier(topic=TOPIC, text="{{ ti.task_id }} failed"),
            SmtpNotifier(
                smtp_conn_id="smtp_default",
                from_email="airflow@examples.test",
                to="operators@examples.test",
                subject="{{ ti.task_id }} of {{ dag.dag_id }} failed",
                html_content="The message is in the topic of failures too.",
            ),
        ],
        "on_success_callback": PulsarNotifier(topic=TOPIC, text="{{ ti.task_id }} succeeded"),
    },
)
def example_pulsar_two_notifiers():
    @task
    def succeed() -> None:
        """This task succeeds, and one message says so."""

    @task
    def fail() -> None:
        raise ValueError("This task fails, so that both notifiers tell of it.")

    succeed() >> fail()


example_pulsar_two_notifiers()
# [END two_notifiers]
