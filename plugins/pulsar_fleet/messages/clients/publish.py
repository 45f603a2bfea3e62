"""Publish messages, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.messages.clients.failures import explained
from pulsar_fleet.messages.clients.shared import shared_client

_AT_ONCE = 500
"""The queue of a producer takes 1,000 unconfirmed messages."""
_KEYS = frozenset({"content", "key", "properties"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to publish.

    :param key: messages with the same key go to the same partition, in their order.
    """

    content: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> Self:
        """From text, bytes, or an object with `content`, `key` and `properties`; anything else is `InvalidRequest`."""
        if isinstance(value, str | bytes):
            return cls(content=_bytes(value))
        if (
            not isinstance(value, Mapping)
            or not set(value) <= _KEYS
            or not isinstance(value.get("content"), str | bytes)
        ):
            raise InvalidRequest(
                f"A message is {type(value).__name__} {_shape(value)}: write text, bytes, or an object with content "
                "(text or bytes), key and properties."
            )
        properties = {str(name): str(text) for name, text in (value.get("properties") or {}).items()}
        return cls(content=_bytes(value["content"]), key=value.get("key"), properties=properties)


async def publish(
    connection: ClusterConnection, topic: str, messages: Sequence[OutgoingMessage], *, producer_name: str | None = None
) -> int:
    """Publish to a topic, in this order for each key; returns how many the broker has stored.

    :param producer_name: with it messages are numbered from 0, so that a topic with deduplication stores none of them
        twice, however often this is called; only one producer of this name can be connected.
    :raises FleetError: the topic cannot be published to; some messages may have been stored.
    """
    with explained(connection, f"publish to {topic}"):
        async with shared_client(connection) as client:
            # A broker that knows the first message of a batch drops all of it, also those that it does not know.
            batching = producer_name is None
            producer = await client.create_producer(topic, producer_name=producer_name, batching_enabled=batching)
            try:
                numbered = iter(enumerate(messages))
                while part := list(islice(numbered, _AT_ONCE)):
                    await asyncio.gather(
                        *(producer.send(**_options(message, number, producer_name)) for number, message in part)
                    )
            finally:
                await producer.close()
    return len(messages)


def _options(message: OutgoingMessage, number: int, producer_name: str | None) -> dict[str, Any]:
    return {
        "content": message.content,
        "partition_key": message.key,
        "properties": dict(message.properties),
        "sequence_id": number if producer_name else None,
    }


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _shape(value: Any) -> str:
    return f"with {', '.join(sorted(map(str, value)))}" if isinstance(value, Mapping) else ""
