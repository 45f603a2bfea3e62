"""Consume a subscription in batches: a batch is acknowledged after it was processed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.clients.dead_letters import DeadLetterPolicy, FailedMessages
from pulsar_fleet.messages.clients.received import ReceivedMessage
from pulsar_fleet.messages.clients.shared import explained
from pulsar_fleet.messages.clients.stream import Batch, Subscription, open_stream

Process = Callable[[Sequence[ReceivedMessage]], Any]
_REDELIVERY_SECONDS = 5.0
"""A message that failed is delivered again after the consumer's delay, 1 s; the run waits for it."""


def consume(
    connection: ClusterConnection,
    subscription: Subscription,
    process: Process,
    *,
    most_messages: int,
    batch_size: int,
    wait_seconds: float,
    dead_letters: DeadLetterPolicy | None = None,
) -> JsonObject:
    """Receive a batch, process it, acknowledge it, and again; returns the numbers of `messages`, `batches` and
    `dead_letters`.

    It ends after `most_messages`, or when none came for `wait_seconds`. When `process` raises, its batch is not
    acknowledged: it is delivered again at once, with what was received ahead. With a policy for dead letters `process`
    is called again for each message of the batch, and only those that fail alone are delivered again.

    :raises FleetError: the topic cannot be consumed.
    """
    messages = batches = 0
    failed = FailedMessages(connection, subscription, dead_letters) if dead_letters else None
    # The loop rests while `process` runs: a callable may use an event loop of its own.
    with asyncio.Runner() as loop, explained(connection, f"consume from {subscription.topic} as {subscription.name}"):
        stack = AsyncExitStack()
        try:
            stream = loop.run(stack.enter_async_context(open_stream(connection, subscription, queue_size=batch_size)))
            while messages < most_messages:
                seconds = max(wait_seconds, _REDELIVERY_SECONDS) if failed and failed.any_outstanding else wait_seconds
                batch = loop.run(stream.next_batch(min(batch_size, most_messages - messages), seconds))
                if batch is None:
                    break
                messages += _process_batch(loop, batch, process, failed)
                batches += 1
        finally:
            loop.run(stack.aclose())
    return {"messages": messages, "batches": batches, "dead_letters": failed.dead_letters if failed else 0}


def _process_batch(loop: asyncio.Runner, batch: Batch, process: Process, failed: FailedMessages | None) -> int:
    """Returns how many messages were acknowledged."""
    try:
        process(batch.messages)
    except Exception as error:
        if failed is None or isinstance(error, failed.policy.fatal):
            raise
        parts = batch.split()
        if len(parts) == 1:
            return loop.run(failed.fail(batch, error))
        return sum(_process_single(loop, single, process, failed) for single in parts)
    if failed and failed.any_outstanding:
        return sum(loop.run(failed.succeed(single)) for single in batch.split())
    loop.run(batch.acknowledge())
    return len(batch.messages)


def _process_single(loop: asyncio.Runner, single: Batch, process: Process, failed: FailedMessages) -> int:
    try:
        process(single.messages)
    except failed.policy.fatal:
        raise
    except Exception as error:
        return loop.run(failed.fail(single, error))
    return loop.run(failed.succeed(single))


def create_subscription(connection: ClusterConnection, subscription: Subscription) -> None:
    """Create a subscription that does not exist, by connecting to it once."""

    async def connect() -> None:
        async with open_stream(connection, subscription, queue_size=1):
            pass

    asyncio.run(connect())
