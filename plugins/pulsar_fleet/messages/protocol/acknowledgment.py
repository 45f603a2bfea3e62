"""Individual acknowledgments of entries that somebody else has consumed, without receiving a message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.connection import ConnectionLost, WireConnection
from pulsar_fleet.messages.protocol.lookup import Brokers

AT_ONCE = 1000
"""Entries in one command: some 30 kB of the 5 MB that a broker accepts."""
_TIMEOUT_SECONDS = 15.0
_LAST = 1000
"""The priority level, so that a consumer of the application remains the active one of a failover subscription."""


class SubscriptionType(StrEnum):
    """The types of subscriptions, by the names in the broker's statistics."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"


_NUMBERS = {
    SubscriptionType.EXCLUSIVE: api.CommandSubscribe.EXCLUSIVE,
    SubscriptionType.SHARED: api.CommandSubscribe.SHARED,
    SubscriptionType.FAILOVER: api.CommandSubscribe.FAILOVER,
    SubscriptionType.KEY_SHARED: api.CommandSubscribe.KEY_SHARED,
}


def acknowledge_entries(
    connection: ClusterConnection,
    topic: TopicName,
    subscription: str,
    kind: SubscriptionType,
    positions: Sequence[Position],
) -> None:
    """Acknowledge whole entries of an existing subscription; those that are acknowledged already stay as they are.

    It connects a consumer without permits, which gets no message, and disconnects it. Only an exclusive subscription
    has no place for it beside a consumer of the application.

    :param topic: a topic without partitions, or one partition.
    :raises FleetError: `Unavailable` if the broker refuses the consumer or the connection broke, so that some of the
        entries may be acknowledged and others not; a second call acknowledges the rest.
    """
    brokers = Brokers(connection, timeout_seconds=_TIMEOUT_SECONDS)
    try:
        broker = brokers.serving(str(topic))
        consumer, request = broker.next_id(), broker.next_id()
        frame = wire.join_subscription(
            request, consumer, str(topic), subscription, _NUMBERS[kind], priority_level=_LAST
        )
        broker.ask(request, frame, about=f"Subscription {subscription!r} of {topic}")
        for begin in range(0, len(positions), AT_ONCE):
            _acknowledge(broker, consumer, topic, positions[begin : begin + AT_ONCE])
        request = broker.next_id()
        broker.ask(request, wire.close_consumer(request, consumer), about=str(topic))
    finally:
        brokers.close()


def _acknowledge(broker: WireConnection, consumer: int, topic: TopicName, positions: Sequence[Position]) -> None:
    request = broker.next_id()
    broker.send(wire.acknowledge(request, consumer, positions))
    end = time.monotonic() + _TIMEOUT_SECONDS
    while (rest := end - time.monotonic()) > 0:
        frame = broker.next_frame(rest)
        if frame is None:
            break
        command = broker.command(frame)
        if command.close_consumer.consumer_id == consumer:
            # The topic was unloaded: acknowledgments after it are dropped without an answer.
            raise ConnectionLost(f"The consumer of {topic} was closed before its acknowledgments were confirmed.")
        if command.ack_response.request_id == request:
            if command.ack_response.HasField("error"):
                reason = command.ack_response.message.decode(errors="replace")
                raise Unavailable(f"Acknowledgments on {topic} failed: {reason}.")
            return
    raise ConnectionLost(f"Acknowledgments on {topic} were not confirmed within {_TIMEOUT_SECONDS:.0f} s.")
