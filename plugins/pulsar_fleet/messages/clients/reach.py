"""Can messages be exchanged with a cluster at all? Asked before something depends on it."""

from __future__ import annotations

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.message_client import open_client

_SECONDS = 5
_TOPIC = "persistent://public/default/connection-test"
"""It need not exist and is not created: only its number of partitions is asked for."""


def require_reachable(connection: ClusterConnection) -> None:
    """Connect by the broker service URL, authenticate and ask for a topic.

    A refusal of the topic is fine: the broker has answered, and knows who asks.

    :raises Unavailable: no broker answered, or none accepted the credentials.
    """
    import pulsar

    client = open_client(connection, operation_timeout_seconds=_SECONDS)
    try:
        client.get_topic_partitions(_TOPIC)
    except (pulsar.exceptions.AuthorizationError, pulsar.exceptions.TopicNotFound):
        return
    except pulsar.PulsarException as error:
        raise Unavailable(
            f"{connection.name} did not answer at its broker service URL {connection.service_url!r} within "
            f"{_SECONDS} s ({type(error).__name__}): correct the URL, the credentials or the TLS trust file."
        ) from error
    finally:
        client.close()
