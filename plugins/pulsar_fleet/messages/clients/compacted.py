"""Where the compacted view of a topic begins: its oldest values may be older than every entry of the log."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import Position, TopicName

if TYPE_CHECKING:
    import pulsar

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
