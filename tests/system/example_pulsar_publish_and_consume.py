"""### Publish messages, and consume them in batches

The callable gets a batch; the batch is acknowledged after the callable succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk import dag

from pulsar_fleet.airflow import PulsarConsumeOperator, PulsarPublishOperator

if TYPE_CHECKING:
    from pulsar_fleet.messages.clients.received import ReceivedMessage

TOPIC = "persistent://examples/airflow/invoices"


# [START publish_and_consume]
def store(messages: Sequence[ReceivedMessage]) -> None:
    """A message may come twice: store it under its id."""
    for message in messages:
        print(message.message_id, message.key, message.content)  # noqa: T201  Airflow logs what a task prints.


@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__)
def example_pulsar_publish_and_consume():
    publish = PulsarPublishOperator(
        task_id="publish",
        topic=TOPIC,
        messages=["plain text of {{ run_id }}", {"content": "42", "key": "acme", "properties": {"unit": "EUR"}}],
        retries=2,
    )
    consume = PulsarConsumeOperator(
        task_id="consume",
        topic=TOPIC,
        subscription="warehouse",
        process=store,
        batch_size=100,
        wait_seconds=5,
        retries=2,
    )
    publish >> consume


example_pulsar_publish_and_consume()
# [END publish_and_consume]
