"""The consumer behind a watcher in Airflow 3.3, which confirms that events are stored; not for older releases."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TYPE_CHECKING

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from pulsar_fleet.airflow.triggers.message_events import MessageEvents
from pulsar_fleet.cluster.json import JsonObject

if TYPE_CHECKING:
    from pulsar_fleet.messages.clients.stream import Batch


class ConfirmedStream(SharedStreamProducer):
    """Acknowledges a batch when its event is in Airflow's database, and has it delivered again when it is not."""

    def __init__(self, events: MessageEvents) -> None:
        self._events = events
        self._batches: AsyncGenerator[Batch | None, None] = events.batches(endless=True)

    async def open_stream(self) -> AsyncIterator[tuple[JsonObject, Batch | None]]:
        """The payload of each event, with the batch to acknowledge."""
        async for batch in self._batches:
            yield self._events.payload(batch), batch

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Acknowledge what is stored; a message that is not acknowledged has a second event later."""
        for messages, outcome in batch:
            if messages is not None:
                await (messages.acknowledge() if outcome.is_clean else messages.redeliver())

    async def aclose(self) -> None:
        """Close the consumer: unacknowledged messages are delivered to the next."""
        await self._batches.aclose()
