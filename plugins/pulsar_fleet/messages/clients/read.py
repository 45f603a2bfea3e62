"""Read a topic without a subscription: from its beginning, its end or a message, to its current end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.messages.clients.failures import explained
from pulsar_fleet.messages.clients.received import ReceivedMessage

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
