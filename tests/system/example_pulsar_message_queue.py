"""### Start a DAG on messages

A watcher consumes a topic in the triggerer and stores an event for each batch of messages; every event starts a run.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetWatcher, dag, task

# [START message_queue]
ORDERS = Asset(
    "pulsar-orders",
    watchers=[
        AssetWatcher(
            name="orders",
            trigger=MessageQueueTrigger(
                scheme="pulsar",
                pulsar_conn_id="pulsar_default",
                topic="persistent://examples/airflow/orders",
                subscription="airflow",
            ),
        )
    ],
)


@dag(schedule=[ORDERS], tags=["pulsar", "example"], doc_md=__doc__)
def example_pulsar_message_queue():
    @task(retries=2)
    def handle_orders(triggering_asset_events: Any = None) -> list[str]:
        """A run may have several events, an event several messages, and a message a second event: use its id."""
        events = [event for events in triggering_asset_events.values() for event in events]
        return [message["content"] for event in events for message in event.extra["payload"]["messages"]]

    handle_orders()


example_pulsar_message_queue()
# [END message_queue]
