"""What a subscription still has to deliver."""

from __future__ import annotations

import time

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.names import TopicName
from pulsar_sandbox.workload.live import Identity
from pulsar_sandbox.workload.schemas import decode

_LONGEST_SECONDS = 60.0


def drain_subscription(
    connection: ClusterConnection,
    topic: TopicName | str,
    subscription: str,
    *,
    acknowledge: bool = True,
    idle_seconds: float = 2.0,
    at_least: int = 0,
) -> list[Identity]:
    """Receive the backlog of an idle subscription, until no message arrives for `idle_seconds`.

    :param topic: a plain topic, a partition, or a partitioned topic with all its partitions.
    :param at_least: how many messages must be there: a busy broker gets a minute to deliver them.
    :param acknowledge: take the messages off; False leaves the backlog as it is, and a second call gets it again.
    :returns: producer, key, number of each delivery, in the order of arrival; numbered messages only.
    :raises Unavailable: the subscription has a consumer, or the cluster does not answer.
    """
    import pulsar

    from pulsar_sandbox.workload.messages import open_client

    client = open_client(connection)
    received: list[Identity] = []
    try:
        consumer = client.subscribe(
            str(topic), subscription, initial_position=pulsar.InitialPosition.Earliest, consumer_name="drain"
        )
        end = time.monotonic() + _LONGEST_SECONDS
        while True:
            try:
                message = consumer.receive(int(idle_seconds * 1000))
            except pulsar.Timeout:
                if len(received) < at_least and time.monotonic() < end:
                    continue
                return received
            received.append(decode(message.data()).identity)
            if acknowledge:
                consumer.acknowledge(message)
    except pulsar.PulsarException as error:
        raise Unavailable(f"Subscription {subscription!r} of {topic} cannot be read: {error}.") from error
    finally:
        client.close()
