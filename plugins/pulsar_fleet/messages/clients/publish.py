"""Publish messages, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Self

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.messages.clients.shared import explained, shared_client

if TYPE_CHECKING:
    from pulsar.asyncio import Client, Producer

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

    :param producer_name: with it messages are numbered from 0, and go to the same partitions in every call, so that a
        topic with deduplication stores none of them twice, however often this is called; only one producer of this
        name can be connected. After partitions were added all of them are stored again.
    :raises FleetError: the topic cannot be published to; some messages may have been stored.
    """
    with explained(connection, f"publish to {topic}"):
        async with shared_client(connection) as client, AsyncExitStack() as opened:
            routes = [(topic, producer_name)] * len(messages)
            if producer_name is not None:
                partitions = await client.get_topic_partitions(topic)
                routes = [*map(partial(_route, topic, partitions, producer_name), messages, count())]
            producers = {
                route: await opened.enter_async_context(_open_producer(client, *route))
                for route in dict.fromkeys(routes)
            }
            numbered = zip(routes, messages, count(), strict=False)
            while part := list(islice(numbered, _AT_ONCE)):
                await asyncio.gather(
                    *(
                        producers[route].send(**_options(message, number, producer_name))
                        for route, message, number in part
                    )
                )
    return len(messages)


def _route(
    topic: str, partitions: Sequence[str], producer_name: str, message: OutgoingMessage, number: int
) -> tuple[str, str]:
    """The topic or partition of a message, and the name of its producer.

    The client chooses partitions for messages without keys at random. The broker knows a producer by its highest number
    in a partition and drops lower ones, so the name changes with the number of partitions: a message that goes to
    another partition than at first would be dropped there, although it is not stored.
    """
    if len(partitions) == 1:
        return topic, producer_name
    name = f"{producer_name}/{len(partitions)} partitions"
    if message.key:
        return topic, name
    return partitions[number % len(partitions)], f"{name}, no keys"


@asynccontextmanager
async def _open_producer(client: Client, topic: str, name: str | None) -> AsyncIterator[Producer]:
    # A broker that knows the first message of a batch drops all of it, also those that it does not know.
    producer = await client.create_producer(topic, producer_name=name, batching_enabled=name is None)
    try:
        yield producer
    finally:
        await producer.close()


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
