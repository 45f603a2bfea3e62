"""What a broker answers to individual acknowledgments, at a socket that answers as a broker does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.support.protobuf_fields import frame, number, text

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.acknowledgment import SubscriptionType, acknowledge_entries

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
REFUSED = number(4, 13) + text(5, "the cursor was closed")


@asynccontextmanager
async def broker(answer: bytes) -> AsyncIterator[ClusterConnection]:
    """It serves every topic itself, accepts the consumer, and answers this to acknowledgments."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                command = api.BaseCommand.FromString((await reader.readexactly(size))[4:])
                place = text(1, url) + number(3, 1) + number(4, command.lookup.request_id)
                consumer, request = command.ack.consumer_id, command.ack.request_id
                answers = {
                    api.CONNECT: frame(api.CONNECTED),
                    api.LOOKUP: frame(api.LOOKUP_RESPONSE, place),
                    api.SUBSCRIBE: frame(api.SUCCESS, number(1, command.subscribe.request_id)),
                    api.ACK: frame(api.ACK_RESPONSE, number(1, consumer), answer, number(6, request)),
                    api.CLOSE_CONSUMER: frame(api.SUCCESS, number(1, command.close_consumer.request_id)),
                }
                writer.write(answers[command.type])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = "pulsar://{}:{}".format(*server.sockets[0].getsockname())
    async with server:
        yield ClusterConnection(name="blue", admin_url="http://127.0.0.1:9", service_url=url)


async def acknowledge(answer: bytes) -> None:
    async with broker(answer) as blue:
        positions = [Position(7, 0)]
        await asyncio.to_thread(acknowledge_entries, blue, TOPIC, "billing", SubscriptionType.SHARED, positions)


async def test_acknowledgments_that_a_broker_confirms_are_made() -> None:
    await acknowledge(b"")


async def test_acknowledgments_that_a_broker_refuses_are_an_error() -> None:
    with pytest.raises(Unavailable, match="failed: the cursor was closed"):
        await acknowledge(REFUSED)
