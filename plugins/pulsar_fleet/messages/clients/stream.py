"""The messages of a subscription in batches, for an event loop; they stay unacknowledged until the caller says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted, did_you_mean
from pulsar_fleet.messages.clients.received import ReceivedMessage
from pulsar_fleet.messages.clients.shared import explained, shared_client

if TYPE_CHECKING:
    import pulsar
    from pulsar.asyncio import Consumer

log = logging.getLogger(__name__)

TYPES = {"shared": "Shared", "key_shared": "KeyShared", "failover": "Failover", "exclusive": "Exclusive"}
POSITIONS = {"earliest": "Earliest", "latest": "Latest"}
MOST_MESSAGES = 1000
_LINGER_SECONDS = 0.02
"""So long a batch waits for another message that is on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What to consume; an invalid setting is `InvalidRequest`.

    :param topic: a topic, `persistent://tenant/namespace/topic`; all partitions of a partitioned one.
    :param name: the subscription; the first consumer creates it.
    :param kind: `shared`, `key_shared`, `failover` or `exclusive`.
    :param initial_position: where a subscription begins that does not exist yet: `latest` or `earliest`.
    """

    topic: str
    name: str
    kind: str = "shared"
    initial_position: str = "latest"

    def __post_init__(self) -> None:
        for setting, value in (("topic", self.topic), ("subscription", self.name)):
            if not value:
                raise InvalidRequest(f"The setting {setting!r} is empty: name a {setting}.")
        for setting, value, known in (
            ("subscription_type", self.kind, TYPES),
            ("initial_position", self.initial_position, POSITIONS),
        ):
            if value not in known:
                hint = did_you_mean(value, list(known), f"use {' or '.join(known)}.")
                raise InvalidRequest(f"{setting} {value!r} is unknown: {hint}")


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that wait for their acknowledgment."""

    messages: tuple[ReceivedMessage, ...]
    _received: tuple[pulsar.Message, ...]
    _consumer: Consumer

    @classmethod
    def of(cls, received: Sequence[pulsar.Message], consumer: Consumer) -> Self:
        """The messages that a consumer received."""
        return cls(tuple(map(ReceivedMessage.of, received)), tuple(received), consumer)

    def split(self) -> Sequence[Batch]:
        """Each message as a batch of its own."""
        pairs = zip(self.messages, self._received, strict=True)
        return [Batch((message,), (received,), self._consumer) for message, received in pairs]

    def to_json(self) -> JsonObject:
        """What an event of Airflow has of them."""
        return {"messages": [message.to_json() for message in self.messages]}

    async def acknowledge(self) -> bool:
        """Acknowledge all of them; False where the client could not, so that the broker delivers some again."""
        from pulsar.asyncio import PulsarException

        results = await asyncio.gather(*map(self._consumer.acknowledge, self._received), return_exceptions=True)
        failures = [result for result in results if isinstance(result, PulsarException)]
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, PulsarException):
                raise result
        if failures:
            number = counted(len(failures), "message")
            log.warning("%s could not be acknowledged and will be delivered again: %s", number, failures[0])
        return not failures

    async def redeliver(self) -> None:
        """Let the broker deliver them again, after the delay of the consumer."""
        for message in self._received:
            await self._consumer.negative_acknowledge(message)


class MessageStream:
    """A consumer of one subscription.

    A receive that is cancelled loses its message until the consumer is closed, so one receive is always pending.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pending: asyncio.Task[pulsar.Message] | None = None

    async def next_batch(self, most_messages: int, wait_seconds: float | None = None) -> Batch | None:
        """The messages that have arrived, at most so many; waits for the first.

        :param wait_seconds: None: without an end. When no message came until then, the result is None.
        """
        received: list[pulsar.Message] = []
        while len(received) < most_messages:
            message = await self._receive(_LINGER_SECONDS if received else wait_seconds)
            if message is None:
                break
            received.append(message)
        return Batch.of(received, self._consumer) if received else None

    async def _receive(self, seconds: float | None) -> pulsar.Message | None:
        self._pending = self._pending or asyncio.ensure_future(self._consumer.receive())
        done, _ = await asyncio.wait({self._pending}, timeout=seconds)
        if not done:
            return None
        pending, self._pending = self._pending, None
        return pending.result()

    async def close(self) -> None:
        """Close the consumer: what it has not acknowledged is delivered again, to whoever consumes next."""
        from pulsar.asyncio import PulsarException

        if self._pending:
            self._pending.cancel()
            await asyncio.wait({self._pending})
        with suppress(PulsarException):  # It may be closed already, with its broker.
            await self._consumer.close()


@asynccontextmanager
async def open_stream(
    connection: ClusterConnection,
    subscription: Subscription,
    *,
    queue_size: int = MOST_MESSAGES,
    name: str | None = None,
) -> AsyncIterator[MessageStream]:
    """Consume a subscription; every error of the client in the block is raised as a `FleetError`.

    :param queue_size: messages that the client receives ahead: they are not delivered to other consumers.
    :param name: the consumer's name, as statistics show it.
    """
    doing = f"consume from {subscription.topic} as {subscription.name}"
    with explained(connection, doing):
        async with shared_client(connection) as client:
            stream = MessageStream(await client.subscribe(**_options(subscription, queue_size, name)))
            try:
                yield stream
            finally:
                await stream.close()


def _options(subscription: Subscription, queue_size: int, name: str | None) -> dict[str, Any]:
    import pulsar

    return {
        "topic": subscription.topic,
        "subscription_name": subscription.name,
        "consumer_type": getattr(pulsar.ConsumerType, TYPES[subscription.kind]),
        "initial_position": getattr(pulsar.InitialPosition, POSITIONS[subscription.initial_position]),
        "receiver_queue_size": queue_size,
        "consumer_name": name,
        "negative_ack_redelivery_delay_ms": 1000,
        # Without it an entry with many messages is delivered again as a whole, for the sake of one of them.
        "batch_index_ack_enabled": True,
    }
