"""The trigger that starts a DAG on messages: at least once, and without a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from pulsar_fleet.airflow.triggers.message_events import MessageEvents
from pulsar_fleet.messages.clients.received import MOST_CONTENT_BYTES
from pulsar_fleet.messages.clients.stream import Subscription

if TYPE_CHECKING:
    from airflow.triggers.shared_stream import SharedStreamProducer

    from pulsar_fleet.messages.clients.stream import Batch


_SENT_SECONDS = 3.0
"""The triggerer sends new events to its supervisor about once a second."""


async def until_persisted() -> None:
    """Wait until the event that was yielded before this call is in Airflow's database.

    Airflow 3.1 and 3.2 do not tell when the event of a trigger is stored, and 3.3 does not tell triggers of tasks.
    A supervisor that cannot write to the database answers no request either. It stores the events of a message before
    it reads the next, so two answers, one after the other, mean that what was sent before them is stored.
    """
    await asyncio.sleep(_SENT_SECONDS)
    for _ in range(2):
        await _supervisor_answers()


async def _supervisor_answers() -> None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetDRCount

    supervisor = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if supervisor is not None:
        await supervisor.asend(GetDRCount(dag_id=""))


class PulsarMessageTrigger(BaseEventTrigger):
    """Fires for messages of a subscription; each is acknowledged after Airflow has stored its event.

    The payload of an event is `{"messages": [{"topic", "message_id", "content", "encoding", "bytes", "key",
    "properties", "publish_time", "redeliveries"}, …]}`. When a triggerer or a broker dies in between, a message has a
    second event with the same `message_id`. Airflow writes payloads to its database and to the triggerer's log.

    :param topic: the topic to consume.
    :param subscription: its subscription, created at the first start; no other application may use it.
    :param pulsar_conn_id: the connection; the trigger reads it itself, so its arguments contain no secret.
    :param subscription_type: `shared`, `key_shared`, `failover` or `exclusive`.
    :param initial_position: where a new subscription begins, `latest` or `earliest`.
    :param max_messages: messages of one event, at most.
    :param max_content_bytes: the content of a larger message is left out of its event; its size and id are there.
    :param interval_seconds: after an event the next waits so long to collect messages, unless it has `max_messages`.
    :param follow_up_seconds: when no message came for this long after events in close succession, one event without
        messages follows: Airflow 3.3.2 leaves an event that comes while a run is about to be created to the next
        one. 0: none.
    :param queue: the queue of triggerers that run it (`airflow triggerer --queues`), where Airflow's event triggers
        have one: not in 3.1 to 3.3.
    """

    def __init__(
        self,
        *,
        topic: str,
        subscription: str,
        pulsar_conn_id: str = "pulsar_default",
        subscription_type: str = "shared",
        initial_position: str = "latest",
        max_messages: int = 100,
        max_content_bytes: int = MOST_CONTENT_BYTES,
        interval_seconds: float = 2.0,
        follow_up_seconds: float = 10.0,
        queue: str | None = None,
    ) -> None:
        BaseEventTrigger.__init__(self)
        self.queue = queue
        self._events = MessageEvents(
            pulsar_conn_id=pulsar_conn_id,
            subscription=Subscription(
                topic=topic, name=subscription, kind=subscription_type, initial_position=initial_position
            ),
            max_messages=max_messages,
            max_content_bytes=max_content_bytes,
            interval_seconds=interval_seconds,
            follow_up_seconds=follow_up_seconds,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of this trigger."""
        return ("pulsar_fleet.airflow.triggers.messages.PulsarMessageTrigger", self._events.arguments())

    def shared_stream_key(self) -> Hashable | None:
        """Let Airflow 3.3 confirm that events are stored; it does so for shared streams only, and not for tasks."""
        return None if self.task_instance else ("pulsar", self.trigger_id)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """The consumer of a watcher in Airflow 3.3, which acknowledges by its confirmations."""
        from pulsar_fleet.airflow.triggers.confirmed_stream import ConfirmedStream

        return ConfirmedStream(cls(**kwargs)._events)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """One event for each batch of the consumer."""
        async for payload in shared_stream:
            yield TriggerEvent(payload)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire for each batch, without an end; for a deferred task, whose trigger ends with its first event, once.

        :raises FleetError: in a deferred task, if the topic cannot be consumed; a watcher tries again.
        """
        endless = self.task_instance is None
        acknowledgments: set[asyncio.Task[None]] = set()
        async with aclosing(self._events.batches(endless=endless)) as batches:
            async for batch in batches:
                yield TriggerEvent(self._events.payload(batch))
                if batch is not None:
                    task = asyncio.create_task(_acknowledge_stored(batch))
                    acknowledgments.add(task)
                    task.add_done_callback(acknowledgments.discard)
                if not endless:
                    await asyncio.gather(*acknowledgments)
                    return


async def _acknowledge_stored(batch: Batch) -> None:
    await until_persisted()
    await batch.acknowledge()
