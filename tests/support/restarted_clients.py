"""Applications that restart with an address of yesterday, and what each of them gets."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pulsar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import TopicName

_ARRIVAL_SECONDS = 20.0
_QUIET_MS = 1000
"""What is delivered again is delivered at once."""
_OPERATION_SECONDS = 15


@dataclass(frozen=True)
class RestartedClient:
    """One application, as its configuration describes it.

    :param topic: a topic, or with `by_pattern` the beginning of the names of some.
    """

    topic: TopicName
    kind: pulsar.ConsumerType = pulsar.ConsumerType.Shared
    position: pulsar.InitialPosition = pulsar.InitialPosition.Earliest
    by_pattern: bool = False
    subscription: str = "app"

    @property
    def name(self) -> str:
        """For the message of a failure."""
        pattern = " by pattern" if self.by_pattern else ""
        return f"{self.topic.local} {self.kind.name} {self.position.name} {self.subscription}{pattern}"

    def consume(self, cluster: ClusterConnection, expected: int) -> list[str]:
        """Start it, let it acknowledge what it gets until it has what is expected and nothing more comes, stop it."""
        client = open_client(cluster, _OPERATION_SECONDS)
        try:
            consumer = self._subscribe(client)

            def receive(milliseconds: int) -> pulsar.Message:
                message = consumer.receive(milliseconds)
                consumer.acknowledge(message)
                return message

            return _received(receive, expected)
        finally:
            client.close()

    def acknowledge(self, cluster: ClusterConnection, count: int) -> list[str]:
        """Start it, let it acknowledge so many messages, and stop it."""
        client = open_client(cluster, _OPERATION_SECONDS)
        try:
            consumer = self._subscribe(client, receiver_queue_size=1)
            messages = [consumer.receive(int(_ARRIVAL_SECONDS * 1000)) for _ in range(count)]
            for message in messages:
                consumer.acknowledge(message)
            return [message.data().decode() for message in messages]
        finally:
            client.close()

    def _subscribe(self, client: pulsar.Client, **options: int) -> pulsar.Consumer:
        return client.subscribe(
            re.compile(f"{self.topic}.*") if self.by_pattern else str(self.topic),
            self.subscription,
            consumer_type=self.kind,
            initial_position=self.position,
            **options,
        )


def read_all(cluster: ClusterConnection, topic: TopicName, expected: int) -> list[str]:
    """What a reader from the earliest message gets."""
    client = open_client(cluster, _OPERATION_SECONDS)
    try:
        reader = client.create_reader(str(topic), pulsar.MessageId.earliest)
        return _received(reader.read_next, expected)
    finally:
        client.close()


def publish(cluster: ClusterConnection, topics: Collection[TopicName], texts: Collection[str]) -> None:
    client = open_client(cluster, _OPERATION_SECONDS)
    try:
        for topic in topics:
            producer = client.create_producer(str(topic))
            for text in texts:
                producer.send(text.encode())
    finally:
        client.close()


async def restart(cluster: ClusterConnection, expected: Mapping[RestartedClient, Counter[str]]) -> dict[str, str]:
    """Restart all with this address: name → how many messages came again and how many are missing, where any did."""
    calls = (asyncio.to_thread(client.consume, cluster, count.total()) for client, count in expected.items())
    got = {client: Counter(texts) for client, texts in zip(expected, await asyncio.gather(*calls), strict=True)}
    return {
        client.name: f"{(got[client] - count).total()} again, {(count - got[client]).total()} missed"
        for client, count in expected.items()
        if got[client] != count
    }


def _received(receive: Callable[[int], pulsar.Message], expected: int) -> list[str]:
    got: list[str] = []
    end = time.monotonic() + _ARRIVAL_SECONDS
    while True:
        try:
            got.append(receive(_QUIET_MS).data().decode())
        except pulsar.Timeout:
            if len(got) >= expected or time.monotonic() > end:
                return got
