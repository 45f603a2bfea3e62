"""Consume a subscription in batches: a batch is acknowledged after it was processed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.clients.failures import explained
from pulsar_fleet.messages.clients.received import ReceivedMessage
from pulsar_fleet.messages.clients.stream import Subscription, open_stream

Process = Callable[[Sequence[ReceivedMessage]], Any]


def consume(
    connection: ClusterConnection,
    subscription: Subscription,
    process: Process,
    *,
    most_messages: int,
    batch_size: int,
    wait_seconds: float,
) -> JsonObject:
    """Receive a batch, process it, acknowledge it, and again; returns the numbers of `messages` and `batches`.

    It ends after `most_messages`, or when none came for `wait_seconds`. When `process` raises, its batch is not
    acknowledged: it is delivered again at once, with what was received ahead.

    :raises FleetError: the topic cannot be consumed.
    """
    messages = batches = 0
    # The loop rests while `process` runs: a callable may use an event loop of its own.
    with asyncio.Runner() as loop, explained(connection, f"consume from {subscription.topic} as {subscription.name}"):
        stack = AsyncExitStack()
        try:
            stream = loop.run(stack.enter_async_context(open_stream(connection, subscription, queue_size=batch_size)))
            while messages < most_messages:
                batch = loop.run(stream.next_batch(min(batch_size, most_messages - messages), wait_seconds))
                if batch is None:
                    break
                process(batch.messages)
                loop.run(batch.acknowledge())
                messages, batches = messages + len(batch.messages), batches + 1
        finally:
            loop.run(stack.aclose())
    return {"messages": messages, "batches": batches}


def create_subscription(connection: ClusterConnection, subscription: Subscription) -> None:
    """Create a subscription that does not exist, by connecting to it once."""

    async def connect() -> None:
        async with open_stream(connection, subscription, queue_size=1):
            pass

    asyncio.run(connect())
