"""Applications that a test connects to one cluster and then to another, as their owners do: stop, start elsewhere."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pulsar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import TopicName

_RECEIVE_MS = 200


@dataclass(frozen=True, slots=True)
class Numbered:
    """A message: the number of each key ascends."""

    key: str
    number: int

    @classmethod
    def of(cls, message: pulsar.Message) -> Numbered:
        return cls(message.partition_key(), int(message.data()))


class Application:
    """Runs in a thread, on one cluster at a time."""

    def __init__(self, topic: TopicName) -> None:
        self.topic = topic
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, cluster: ClusterConnection) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._guarded, args=(cluster,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is under way, and disconnect."""
        self._stopping.set()
        if self._thread:
            self._thread.join(30)
            assert not self._thread.is_alive()

    def restart(self, cluster: ClusterConnection) -> None:
        self.stop()
        self.start(cluster)

    def _guarded(self, cluster: ClusterConnection) -> None:
        client = open_client(cluster)
        try:
            self._run(client)
        except pulsar.PulsarException as error:
            self.errors.append(f"{self.topic} on {cluster.name}: {error}")
        finally:
            client.close()

    def _run(self, client: pulsar.Client) -> None:
        raise NotImplementedError


async def wait_copied(blue: AdminClient, partitions: Iterable[TopicName], cluster: str) -> None:
    """Wait until a cluster has every entry, as an owner does who keeps the order of keys."""
    async with asyncio.timeout(30):
        for partition in partitions:
            while (await blue.stats(partition, precise=False))["replication"][cluster]["replicationBacklog"]:
                await asyncio.sleep(0.1)


class Publisher(Application):
    """Publishes the next number of each of its keys in turn; `sent` holds what the broker has acknowledged."""

    def __init__(self, topic: TopicName, keys: Sequence[str], *, per_second: float) -> None:
        super().__init__(topic)
        self.sent: list[Numbered] = []
        self._keys, self.pause_seconds = keys, 1 / per_second
        self._numbers: Counter[str] = Counter()

    def _run(self, client: pulsar.Client) -> None:
        producer = client.create_producer(str(self.topic))
        while not self._stopping.is_set():
            for key in self._keys:
                producer.send(str(self._numbers[key]).encode(), partition_key=key)
                self.sent.append(Numbered(key, self._numbers[key]))
                self._numbers[key] += 1
                time.sleep(self.pause_seconds)
        producer.close()


@dataclass
class Received:
    """What one subscription got, in its order, from both clusters."""

    messages: list[Numbered] = field(default_factory=list)

    def lost(self, sent: Sequence[Numbered]) -> set[Numbered]:
        return set(sent) - set(self.messages)

    def twice(self) -> int:
        return sum(count - 1 for count in Counter(self.messages).values())

    def out_of_order(self) -> list[Numbered]:
        """Messages that came for the first time after a later one of their key."""
        highest: dict[str, int] = defaultdict(lambda: -1)
        late = []
        for message in dict.fromkeys(self.messages):
            if message.number < highest[message.key]:
                late.append(message)
            highest[message.key] = max(highest[message.key], message.number)
        return late


class Subscriber(Application):
    """Acknowledges everything that it receives; `received` is in the order of the acknowledgments."""

    def __init__(
        self, topic: TopicName, subscription: str, kind: pulsar.ConsumerType = pulsar.ConsumerType.Exclusive
    ) -> None:
        super().__init__(topic)
        self.subscription = subscription
        self.received = Received()
        self.kind = kind

    def _run(self, client: pulsar.Client) -> None:
        consumer = client.subscribe(
            str(self.topic),
            self.subscription,
            consumer_type=self.kind,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        while not self._stopping.is_set():
            try:
                message = consumer.receive(_RECEIVE_MS)
            except pulsar.Timeout:
                continue
            self.received.messages.append(Numbered.of(message))
            consumer.acknowledge(message)
        consumer.close()
