"""A source with a shadow topic, consumers that acknowledge there, and a forwarder in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar
from tests.support.cursors import CUMULATIVE
from tests.support.event_exchange import until
from tests.support.replication import make_alone

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import SubscriptionStats, cursors_in_stats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.read_only.forwarding.forwarder import forward_once
from pulsar_fleet.read_only.forwarding.request import Request
from pulsar_fleet.read_only.forwarding.results import ForwardingResult, SubscriptionResult, acknowledged

BATCH = 3


@dataclass
class Readers:
    """A source with a shadow topic, and clients of both."""

    admin: AdminClient
    client: pulsar.Client
    source: TopicName
    shadow: TopicName
    partitions: int = 0
    ids: list[Position] = field(default_factory=list)

    def publish(self, entries: int, batch: int = BATCH) -> None:
        """Publish entries of `batch` messages."""
        producer = self.client.create_producer(
            str(self.source),
            batching_enabled=batch > 1,
            batching_max_messages=max(batch, 2),
            batching_max_publish_delay_ms=10_000,
        )
        for number in range(entries):
            sent: list[Any] = []
            for message in range(batch):
                producer.send_async(
                    f"{number}.{message}".encode(),
                    lambda _, id_, sent=sent: sent.append(id_),
                    partition_key=f"{number}",
                )
            producer.flush()
            self.ids.append(Position(sent[0].ledger_id(), sent[0].entry_id()))
        producer.close()

    def subscribe(self, topic: TopicName, name: str, kind: Any, queue: int = 100) -> pulsar.Consumer:
        return self.client.subscribe(
            str(topic),
            name,
            consumer_type=kind,
            receiver_queue_size=queue,
            initial_position=pulsar.InitialPosition.Earliest,
        )

    async def make_subscription(self, name: str, kind: Any = pulsar.ConsumerType.Shared) -> None:
        """An owner's subscription and one of the shadow topic, both at the beginning, which are forwarded."""
        for topic in (self.source, self.shadow):
            # A queue of size 0 is not possible on a partitioned topic.
            (await asyncio.to_thread(self.subscribe, topic, name, kind, int(self.partitions > 0))).close()
        await self.forward()

    def acknowledge(self, topic: TopicName, name: str, kind: Any, mark: int, holes: Sequence[int] = ()) -> None:
        """Acknowledge the first `mark` entries, and some beyond them."""
        consumer = self.subscribe(topic, name, kind, 0)
        if mark and kind in CUMULATIVE:
            consumer.acknowledge_cumulative(self.id(mark - 1))
        for number in [*(range(mark) if kind not in CUMULATIVE else ()), *holes]:
            consumer.acknowledge(self.id(number))
        consumer.close()

    def id(self, number: int) -> pulsar.MessageId:
        return pulsar.MessageId(-1, self.ids[number].ledger, self.ids[number].entry, -1)

    async def forward(self, **settings: Any) -> ForwardingResult:
        return await forward_once(self.admin, Request.of({"namespace": str(self.shadow.namespace), **settings}))

    async def one(self, name: str, **settings: Any) -> SubscriptionResult:
        (result,) = (await self.forward(subscriptions=[name], **settings)).subscriptions
        return result

    async def cursor(self, topic: TopicName, name: str) -> tuple[Position, str]:
        cursor = cursors_in_stats(await self.admin.internal_stats(topic))[name]
        return cursor.mark_delete, cursor.acknowledged

    async def equal(self, name: str) -> bool:
        """Whether both have acknowledged the same entries.

        A shadow topic whose first ledger was empty and is gone may write them as `612:-1` with a hole `615:-1..615:1`
        instead of `615:1` (observed).
        """
        shadow, owner = [await self.acknowledged(topic, name) for topic in (self.shadow, self.source)]
        return shadow == owner

    async def fill(self, entries: int, batch: int = BATCH) -> None:
        """Publish, and wait until the shadow topic has it: it drops acknowledgments of entries that it lacks."""
        await asyncio.to_thread(self.publish, entries, batch)
        async with asyncio.timeout(30):
            while Position.parse((await self.admin.internal_stats(self.shadow))["lastConfirmedEntry"]) < self.ids[-1]:
                await asyncio.sleep(0.05)

    async def acknowledged(self, topic: TopicName, name: str) -> set[Position]:
        """Every entry that a subscription has acknowledged, on all partitions."""
        entries: set[Position] = set()
        for stored in topic.partitions(self.partitions):
            internal = await self.admin.internal_stats(stored)
            ledgers = Ledgers.of(internal)
            cursor = cursors_in_stats(internal)[name]
            state = SubscriptionCursor.of(ledgers, len(ledgers), cursor, SubscriptionStats.of(name, {}))
            entries.update(ledgers.at(number) for number in acknowledged(state))
        return entries


async def make_readers(admin: AdminClient, tenant: str, client: pulsar.Client, partitions: int = 0) -> Readers:
    """A source that keeps everything, and a shadow topic that is linked to it."""
    source = TopicName(NamespaceName(tenant, "source"), "events")
    shadow = TopicName(NamespaceName(tenant, "readers"), "events")
    for topic in (source, shadow):
        await make_alone(admin, topic.namespace)
    await (admin.create_partitioned_topic(source, partitions) if partitions else admin.create_topic(source))
    for stored in source.partitions(partitions):
        await admin.stats(stored)
    properties = {SHADOW_SOURCE: str(source)}
    if partitions:
        await admin.create_partitioned_topic(shadow, partitions, properties)
    else:
        await admin.create_topic(shadow, properties)
    await admin.put(f"/{source.path}/shadowTopics", [str(shadow)])
    for stored in shadow.partitions(partitions):
        await admin.stats(stored)
    return Readers(admin, client, source, shadow, partitions)


class Application:
    """A consumer of a shadow topic in a thread: of ten batches it acknowledges eight, one in part and one not at all.

    Cumulatively it acknowledges every fifth batch with all before it.
    """

    def __init__(self, readers: Readers, name: str, kind: Any, *, cumulative: bool) -> None:
        self.name = name
        self._cumulative = cumulative
        self._consumer = readers.subscribe(readers.shadow, name, kind, 20)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._seen: set[Position] = set()
        self._acknowledged: set[Position] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def acknowledged(self) -> set[Position]:
        """The entries whose acknowledgment was complete or on its way until now."""
        with self._lock:
            return set(self._acknowledged)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            with suppress(pulsar.PulsarException):
                self._take(self._consumer.receive(timeout_millis=200))

    def _take(self, message: pulsar.Message) -> None:
        at = message.message_id()
        entry, last = Position(at.ledger_id(), at.entry_id()), at.batch_index() == BATCH - 1
        if self._cumulative:
            self._seen.add(entry)
            if last and entry.entry % 5 == 0:
                self._note({position for position in self._seen if position <= entry})
                self._consumer.acknowledge_cumulative(message)
            return
        fate = random.Random(f"{self.name} {entry}").randrange(10)
        if fate < 8 or (fate == 8 and not last):
            if fate < 8 and last:
                self._note({entry})
            self._consumer.acknowledge(message)

    def _note(self, entries: set[Position]) -> None:
        with self._lock:
            self._acknowledged |= entries


class Traffic:
    """Publishes batches until closed.

    :param keyed: the key of a batch decides its partition.
    """

    def __init__(self, readers: Readers, pause: float = 0.01, *, keyed: bool = False) -> None:
        self._readers = readers
        self._pause = pause
        self._keyed = keyed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        producer = self._readers.client.create_producer(
            str(self._readers.source),
            batching_enabled=True,
            batching_max_messages=BATCH,
            batching_max_publish_delay_ms=10_000,
            batching_type=pulsar.BatchingType.Default,
        )
        number = 0
        while not self._stopped.is_set():
            for message in range(BATCH):
                key = f"key-{number % 7}" if self._keyed else None
                producer.send_async(f"{number}.{message}".encode(), lambda _result, _id: None, partition_key=key)
            with suppress(pulsar.PulsarException):
                producer.flush()
            number += 1
            self._stopped.wait(self._pause)
        producer.close()


@contextmanager
def forwarder(connection: ClusterConnection, readers: Readers, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own; what it says is in `forwarder-….log`."""
    extra = {
        "service_url": connection.service_url,
        "token": connection.token,
        "tls_trust_file": connection.tls_trust_file,
    }
    texts = {name: str(value) for name, value in extra.items() if value}
    environment = {
        **os.environ,
        "AIRFLOW_CONN_PULSAR_READERS": json.dumps(
            {"conn_type": "pulsar", "host": connection.admin_url, "extra": texts}
        ),
    }
    command = [sys.executable, "-m", "pulsar_fleet.cli", "forward-acknowledgments", "pulsar_readers", "--yes"]
    command += ["--namespace", str(readers.shadow.namespace), "--poll-seconds", "0.05"]
    log = folder / f"forwarder-{os.urandom(3).hex()}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        until(lambda: b"Forwarding" in log.read_bytes() or process.poll() is not None, "the forwarder began")
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


@dataclass
class Watched:
    """Applications whose owner's subscriptions are compared with them all the time."""

    readers: Readers
    applications: list[Application]
    forwarded: int = 0

    async def compare(self) -> None:
        """At each moment the owner has acknowledged nothing that no consumer has; it counts what the owner has."""
        total = 0
        for application in self.applications:
            owner = await self.readers.acknowledged(self.readers.source, application.name)
            invented = owner - application.acknowledged()
            assert not invented, (application.name, sorted(invented)[:5])
            total += len(owner)
        self.forwarded = total

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait until the broker has every acknowledgment that the consumers have made."""
        end = time.monotonic() + seconds
        for application in self.applications:
            while await self.readers.acknowledged(self.readers.shadow, application.name) != application.acknowledged():
                assert time.monotonic() < end, application.name
                await asyncio.sleep(0.1)
