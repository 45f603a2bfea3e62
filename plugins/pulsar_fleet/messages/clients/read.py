"""Read a topic without a subscription, to its current end; where its compacted view begins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.clients.received import ReceivedMessage
from pulsar_fleet.messages.clients.shared import explained

if TYPE_CHECKING:
    import pulsar


_MESSAGE_ID = re.compile(r"(\d+):(\d+):(-?\d+):(-?\d+)")


@contextmanager
def open_reader(
    connection: ClusterConnection, topic: str, *, start: str = "earliest", wait_seconds: float = 0.0
) -> Iterator[Iterator[ReceivedMessage]]:
    """The messages of a topic as an iterator, in the order of each partition; nothing is acknowledged.

    The broker keeps nothing of a reader after the block, and retains no message for it.

    :param start: `earliest`, `latest`, or the `message_id` of a message: the reader begins after it.
    :param wait_seconds: the iterator ends when no message came for so long at the end of the topic.
    :raises FleetError: the topic cannot be read, or `start` is none of these.
    """
    begin = _position(start)
    with explained(connection, f"read {topic}"):
        client = open_client(connection)
        try:
            if begin.partition() >= 0 and client.get_topic_partitions(topic) != [topic]:
                raise InvalidRequest(f"{start!r} is a message of a partition: read {topic}-partition-… instead.")
            yield _messages(client.create_reader(topic, begin), wait_seconds)
        finally:
            client.close()


def _position(start: str) -> pulsar.MessageId:
    import pulsar

    if start in ("earliest", "latest"):
        position: pulsar.MessageId = getattr(pulsar.MessageId, start)
        return position
    match = _MESSAGE_ID.fullmatch(start)
    if not match:
        raise InvalidRequest(f"start {start!r} is unknown: use earliest, latest or the message_id of a message.")
    ledger, entry, partition, batch = map(int, match.groups())
    return pulsar.MessageId(partition, ledger, entry, batch)


def _messages(reader: pulsar.Reader, wait_seconds: float) -> Iterator[ReceivedMessage]:
    import pulsar

    while True:
        at_end = not reader.has_message_available()
        if at_end and wait_seconds <= 0:
            return
        try:
            message = reader.read_next(timeout_millis=max(1, round(wait_seconds * 1000)) if at_end else None)
        except pulsar.Timeout:
            return
        yield ReceivedMessage.of(message)


_SECONDS = 10
_READ_MS = 5000


def first_compacted(
    connection: ClusterConnection, topics: Collection[TopicName]
) -> dict[TopicName, Position | FleetError | None]:
    """The position of the first message that a reader of each compacted plain topic or partition gets, or its error.

    None for one that gives no message. Values of the compacted ledger keep the positions that they had in the log.
    Blocks; opens one client, if there are topics.

    :raises FleetError: see `open_client`.
    """
    if not topics:
        return {}
    client = open_client(connection, operation_timeout_seconds=_SECONDS)
    try:
        return {topic: _first(client, topic, connection.name) for topic in topics}
    finally:
        client.close()


def _first(client: pulsar.Client, topic: TopicName, cluster: str) -> Position | FleetError | None:
    import pulsar

    try:
        reader = client.create_reader(
            str(topic),
            pulsar.MessageId.earliest,
            is_read_compacted=True,
            crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
        )
        message = reader.read_next(timeout_millis=_READ_MS)
    except pulsar.Timeout:
        return None
    except pulsar.PulsarException as error:
        return Unavailable(f"No reader of {topic} could be opened on {cluster}: {error}.")
    reader.close()
    return Position(message.message_id().ledger_id(), message.message_id().entry_id())
