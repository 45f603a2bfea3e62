"""Frames of Pulsar's binary protocol: the few commands that reading, acknowledging and probing need, as bytes (pure).

A frame is its size, the size of its command, the command (a protobuf), and for a message the stored entry after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from google.protobuf.message import Message

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api

PROTOCOL_VERSION = 21
CLIENT = "pulsar-fleet"
_SIZES = struct.Struct(">II")


def frame(kind: int, **command: Message) -> bytes:
    """A whole frame with one command.

    :param command: its content, by the name of its field in `BaseCommand`.
    """
    content: bytes = api.BaseCommand(type=kind, **command).SerializeToString()
    return _SIZES.pack(len(content) + 4, len(content)) + content


def read_message(data: bytearray, index: int) -> tuple[int, int, int]:
    """Consumer, ledger and entry of the message command at `index`.

    Brokers write fields in the order of their numbers, and every field before the ledger takes two bytes.
    `BaseCommand` reads any order, but takes 60 % longer, and every entry needs this.
    """
    consumer, index = read_varint(data, index + 5)
    ledger, index = read_varint(data, index + 3)
    entry, _ = read_varint(data, index + 1)
    return consumer, ledger, entry


def read_varint(data: bytearray, index: int) -> tuple[int, int]:
    """The number at `index`, and the index after it."""
    value = shift = 0
    while True:
        byte = data[index]
        index += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index
        shift += 7


def connect(*, method: str | None, credentials: bytes | None, broker_url: str | None) -> bytes:
    """The handshake: credentials, and the broker to which a proxy forwards."""
    command = api.CommandConnect(
        client_version=CLIENT,
        auth_method_name=method,
        auth_data=credentials,
        protocol_version=PROTOCOL_VERSION,
        proxy_to_broker_url=broker_url,
        feature_flags=api.FeatureFlags(supports_auth_refresh=True),
    )
    return frame(api.CONNECT, connect=command)


def auth_response(*, method: str, credentials: bytes) -> bytes:
    """The answer to an authentication challenge, which a broker sends when credentials expire."""
    response = api.AuthData(auth_method_name=method, auth_data=credentials)
    command = api.CommandAuthResponse(client_version=CLIENT, response=response, protocol_version=PROTOCOL_VERSION)
    return frame(api.AUTH_RESPONSE, auth_response=command)


def lookup(request: int, topic: str, *, authoritative: bool, listener_name: str | None = None) -> bytes:
    """Ask which broker serves a topic, and for its address of that advertised listener."""
    command = api.CommandLookupTopic(
        topic=topic, request_id=request, authoritative=authoritative, advertised_listener_name=listener_name
    )
    return frame(api.LOOKUP, lookup=command)


def subscribe(
    request: int, consumer: int, topic: str, subscription: str, first: Position, *, compacted: bool = False
) -> bytes:
    """A non-durable, exclusive subscription that begins with the entry `first` and never creates the topic.

    :param compacted: read the latest value of each key, where the topic was compacted.
    """
    start = api.MessageIdData(ledger_id=first.ledger, entry_id=first.entry)
    if first.ledger >= 0:
        # With a batch index the broker includes the start entry; without it, the broker begins after that entry.
        start.batch_index = 0
    command = api.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        sub_type=api.CommandSubscribe.EXCLUSIVE,
        consumer_id=consumer,
        request_id=request,
        durable=False,
        start_message_id=start,
        read_compacted=compacted,
        force_topic_creation=False,
    )
    return frame(api.SUBSCRIBE, subscribe=command)


def join_subscription(
    request: int, consumer: int, topic: str, subscription: str, kind: int, *, priority_level: int
) -> bytes:
    """A consumer of a durable subscription; it gets no message before `flow` allows some.

    :param kind: a number of `CommandSubscribe.SubType`.
    :param priority_level: a larger number comes after consumers with smaller ones.
    """
    command = api.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        sub_type=api.CommandSubscribe.SubType.ValueType(kind),
        consumer_id=consumer,
        request_id=request,
        consumer_name=CLIENT,
        priority_level=priority_level,
        durable=True,
        force_topic_creation=False,
    )
    return frame(api.SUBSCRIBE, subscribe=command)


def create_producer(request: int, producer: int, topic: str) -> bytes:
    """A producer without a name and a schema; the broker closes it with the connection."""
    command = api.CommandProducer(topic=topic, producer_id=producer, request_id=request)
    return frame(api.PRODUCER, producer=command)


def acknowledge(request: int, consumer: int, positions: Iterable[Position]) -> bytes:
    """Acknowledge whole entries individually; the broker answers the request."""
    command = api.CommandAck(
        consumer_id=consumer,
        ack_type=api.CommandAck.INDIVIDUAL,
        message_id=[api.MessageIdData(ledger_id=position.ledger, entry_id=position.entry) for position in positions],
        request_id=request,
    )
    return frame(api.ACK, ack=command)


def flow(consumer: int, messages: int) -> bytes:
    """Allow the broker to send this many more messages."""
    return frame(api.FLOW, flow=api.CommandFlow(consumer_id=consumer, message_permits=messages))


def close_consumer(request: int, consumer: int) -> bytes:
    """End a subscription."""
    return frame(api.CLOSE_CONSUMER, close_consumer=api.CommandCloseConsumer(consumer_id=consumer, request_id=request))


def consumer_stats(request: int, consumer: int) -> bytes:
    """Ask for the statistics of a subscription."""
    return frame(api.CONSUMER_STATS, consumer_stats=api.CommandConsumerStats(request_id=request, consumer_id=consumer))


def get_last_message_id(request: int, consumer: int) -> bytes:
    """Ask for the last message that the broker would deliver."""
    command = api.CommandGetLastMessageId(consumer_id=consumer, request_id=request)
    return frame(api.GET_LAST_MESSAGE_ID, get_last_message_id=command)


PONG = frame(api.PONG, pong=api.CommandPong())
