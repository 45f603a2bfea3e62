"""Which messages become one event, and when: batches of a subscription, paced, over every failure of a broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pulsar_fleet.airflow.hooks.pulsar import aread_connection
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.clients.stream import MOST_MESSAGES, Batch, MessageStream, Subscription, open_stream

log = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvents:
    """The settings of `PulsarMessageTrigger`; an invalid one is `InvalidRequest`, when the DAG file is parsed."""

    pulsar_conn_id: str
    subscription: Subscription
    max_messages: int
    max_content_bytes: int
    interval_seconds: float
    follow_up_seconds: float

    def __post_init__(self) -> None:
        if not 1 <= self.max_messages <= MOST_MESSAGES:
            raise InvalidRequest(f"max_messages is {self.max_messages}; set it to 1 to {MOST_MESSAGES:,}.")
        for name in ("max_content_bytes", "interval_seconds", "follow_up_seconds"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} is {getattr(self, name)}; set it to 0 or more.")

    def arguments(self) -> dict[str, Any]:
        """The arguments of the trigger."""
        return {
            "topic": self.subscription.topic,
            "subscription": self.subscription.name,
            "pulsar_conn_id": self.pulsar_conn_id,
            "subscription_type": self.subscription.kind,
            "initial_position": self.subscription.initial_position,
            "max_messages": self.max_messages,
            "max_content_bytes": self.max_content_bytes,
            "interval_seconds": self.interval_seconds,
            "follow_up_seconds": self.follow_up_seconds,
        }

    def payload(self, batch: Batch | None) -> JsonObject:
        """What an event contains."""
        messages = batch.messages if batch else ()
        return {"messages": [message.to_json(self.max_content_bytes) for message in messages]}

    async def batches(self, *, endless: bool) -> AsyncGenerator[Batch | None, None]:
        """Batches of messages, and None for an event without messages.

        :param endless: connect again after every error, with a wait of up to 30 s; else the error is raised.
        """
        wait_seconds = _FIRST_WAIT_SECONDS
        while True:
            try:
                connection = await aread_connection(self.pulsar_conn_id)
                async with open_stream(connection, self.subscription) as stream:
                    log.info("Consuming %s as %s", self.subscription.topic, self.subscription.name)
                    async with aclosing(self._paced(stream)) as batches:
                        async for batch in batches:
                            wait_seconds = _FIRST_WAIT_SECONDS
                            yield batch
            except FleetError as error:
                if not endless:
                    raise
                log.warning("%s Next attempt in %.0f s.", error, wait_seconds)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 2, _LONGEST_WAIT_SECONDS)

    async def _paced(self, stream: MessageStream) -> AsyncGenerator[Batch | None, None]:
        loop = asyncio.get_running_loop()
        last_event, in_succession = -self.follow_up_seconds, False
        while True:
            wait_seconds = self.follow_up_seconds if in_succession else None
            batch = await stream.next_batch(self.max_messages, wait_seconds)
            in_succession = batch is not None and loop.time() - last_event < self.follow_up_seconds
            last_event = loop.time()
            yield batch
            if batch is None or len(batch.messages) < self.max_messages:
                await asyncio.sleep(self.interval_seconds)
