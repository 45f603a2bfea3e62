"""What a broker answers to individual acknowledgments, at a socket that answers as a broker does."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.support.protobuf_fields import frame, number, text
from tests.support.wire_broker import wire_broker

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.acknowledgment import SubscriptionType, acknowledge_entries

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
REFUSED = number(4, 13) + text(5, "the cursor was closed")


def to_consumer(command: api.BaseCommand, acknowledged: bytes) -> bytes:
    """Accept the consumer, and answer this to its acknowledgments."""
    consumer, request = command.ack.consumer_id, command.ack.request_id
    answers = {
        api.SUBSCRIBE: frame(api.SUCCESS, number(1, command.subscribe.request_id)),
        api.ACK: frame(api.ACK_RESPONSE, number(1, consumer), acknowledged, number(6, request)),
        api.CLOSE_CONSUMER: frame(api.SUCCESS, number(1, command.close_consumer.request_id)),
    }
    return answers[command.type]


async def acknowledge(answer: bytes) -> None:
    async with wire_broker(partial(to_consumer, acknowledged=answer)) as blue:
        positions = [Position(7, 0)]
        await asyncio.to_thread(acknowledge_entries, blue, TOPIC, "billing", SubscriptionType.SHARED, positions)


async def test_acknowledgments_that_a_broker_confirms_are_made() -> None:
    await acknowledge(b"")


async def test_acknowledgments_that_a_broker_refuses_are_an_error() -> None:
    with pytest.raises(Unavailable, match="failed: the cursor was closed"):
        await acknowledge(REFUSED)
