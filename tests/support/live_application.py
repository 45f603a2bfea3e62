"""An application that follows a connection document while a test moves it: what it sends, and what it gets."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
from tests.support.replicated_applications import replicate_both_ways
from tests.support.replication import wait_linked

from pulsar_fleet.clients.provider import DocumentProvider
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName

_HELD = 7
"""Every so many messages one stays unacknowledged, up to `holds`."""


async def make_linked_topic(first: AdminClient, second: AdminClient, namespace: NamespaceName) -> TopicName:
    """A topic that each of two clusters copies to the other."""
    await replicate_both_ways(first, second, namespace)
    topic = TopicName(namespace, "events")
    # The replicator creates it on the other cluster.
    await first.create_topic(topic)
    await wait_linked(first, [topic], await second.cluster_name())
    await wait_linked(second, [topic], await first.cluster_name())
    return topic


def receive(consumer: pulsar.Consumer) -> bytes:
    """The next message, acknowledged."""
    message = consumer.receive(10_000)
    consumer.acknowledge(message)
    return bytes(message.data())


async def unread(admin: AdminClient, topic: str, subscription: str, wanted: set[bytes]) -> set[bytes]:
    """What a subscription delivers until it has delivered all this, or nothing comes for two seconds."""

    def drain() -> set[bytes]:
        client, got = open_client(admin.connection), set[bytes]()
        consumer = client.subscribe(topic, subscription)
        while not wanted <= got:
            try:
                message = consumer.receive(2_000)
            except pulsar.Timeout:
                break
            got.add(bytes(message.data()))
        client.close()
        return got

    return await asyncio.to_thread(drain)


class LiveApplication:
    """A producer and a consumer that follow a document.

    :param document: a file, or where a server has it, with the token `t0`. Or the service URL of a cluster: then it
        follows none.
    :param replicated: brokers replicate the state of its subscription.
    :param apart: they have a client each, and so no connection in common.
    :param subscription: its own; `first`: the number of its first message, where two of them share a topic.
    """

    def __init__(
        self,
        document: Path | str,
        topic: TopicName,
        *,
        replicated: bool = False,
        apart: bool = False,
        subscription: str = "application",
        first: int = 0,
        holds: int = 3,
    ) -> None:
        self._first, self._holds = first, holds
        self.sent: list[bytes] = []
        self.received: Counter[bytes] = Counter()
        self.held: set[bytes] = set()
        self.gap = 0.0
        self._stopped = threading.Event()
        url = document if isinstance(document, str) else document.as_uri()
        # A producer that moves before its consumer publishes what that gets on both clusters.
        polls = (0.5, 0.05) if apart else (0.2,)
        self._clients = [
            pulsar.Client(
                url if url.startswith("pulsar://") else DocumentProvider(url, token=lambda: "t0", poll_seconds=seconds)
            )
            for seconds in polls
        ]
        self._producer = self._clients[0].create_producer(
            str(topic), send_timeout_millis=60_000, batching_enabled=False
        )
        self._consumer = self._clients[-1].subscribe(
            str(topic),
            subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            replicate_subscription_state_enabled=replicated,
        )
        self._threads = [threading.Thread(target=work) for work in (self._publish, self._receive)]

    @contextmanager
    def running(self) -> Iterator[LiveApplication]:
        """Publish and receive while the block runs; at its end receive what was published."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            for thread in self._threads:
                thread.join()
            for client in self._clients:
                client.close()

    @property
    def lost(self) -> set[bytes]:
        """What a broker had stored, and nobody got."""
        return set(self.sent) - self.received.keys()

    async def receive_all(self) -> None:
        """Until nothing that was stored is missing."""
        async with asyncio.timeout(30):
            while self.lost:
                await asyncio.sleep(0.2)

    @property
    def repeated(self) -> int:
        """Deliveries of messages that it had acknowledged."""
        return sum(count - 1 for content, count in self.received.items() if content not in self.held)

    async def publish_more(self, count: int) -> None:
        """Until so many more are stored."""
        until = len(self.sent) + count
        async with asyncio.timeout(60):
            while len(self.sent) < until:
                await asyncio.sleep(0.05)

    def _publish(self) -> None:
        last = time.monotonic()
        while not self._stopped.wait(0.01):
            content = b"%d" % (self._first + len(self.sent))
            self._producer.send(content)
            self.sent.append(content)
            self.gap, last = max(self.gap, time.monotonic() - last), time.monotonic()

    def _receive(self) -> None:
        # So long after the end what is missing is lost.
        end = math.inf
        # The publisher may store one more message after it was told to stop.
        while (publishing := self._threads[0].is_alive()) or (self.lost and time.monotonic() < end):
            end = math.inf if publishing else min(end, time.monotonic() + 30.0)
            try:
                message = self._consumer.receive(500)
            except pulsar.Timeout:
                continue
            content = message.data()
            self.received[content] += 1
            if len(self.held) < self._holds and int(content) % _HELD == _HELD - 1:
                self.held.add(content)
            elif content not in self.held:
                self._consumer.acknowledge(message)
