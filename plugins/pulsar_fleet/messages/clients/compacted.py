"""Where the compacted view of a topic begins: its oldest values may be older than every entry of the log."""

from __future__ import annotations

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import Position, TopicName

_SECONDS = 10
_READ_MS = 5000


def first_compacted(connection: ClusterConnection, topic: TopicName) -> Position | None:
    """The position of the first message that a reader of this compacted plain topic or partition gets; None without.

    Values of the compacted ledger keep the positions that they had in the log. Blocks; opens a client.

    :raises Unavailable: the broker gave no reader; the message says why.
    """
    import pulsar

    client = open_client(connection, operation_timeout_seconds=_SECONDS)
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
        raise Unavailable(f"No reader of {topic} could be opened on {connection.name}: {error}.") from error
    finally:
        client.close()
    return Position(message.message_id().ledger_id(), message.message_id().entry_id())
