"""Two real clusters that exchange events of metadata: what the tests of this have in common."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulsar
from tests.support.reconciler import until_older

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.policy_sync.events.request import SUBSCRIPTION, Request
from pulsar_fleet.policy_sync.events.results import SyncSummary
from pulsar_fleet.policy_sync.events.steps import synchronise


@dataclass
class Exchange:
    """Runs over one tenant, with an event topic of its own."""

    connections: tuple[ClusterConnection, ...]
    request: Request
    runs: int = 0

    @classmethod
    def of(cls, tenant: str, *connections: ClusterConnection, **settings: Any) -> Exchange:
        topic = TopicName.parse(f"persistent://{tenant}-events/metadata/events")
        selection = Selection(tenants=frozenset({tenant}))
        request = Request(selection=selection, event_topic=topic, idle_seconds=1.0, **settings)
        return cls(connections, request)

    async def run(self, **settings: Any) -> SyncSummary:
        """One scheduled run."""
        self.runs += 1
        run = Run.open(f"sync/{self.runs}")
        return await synchronise(self.connections, replace(self.request, **settings), run)

    async def settle(self, **settings: Any) -> None:
        """Run until nobody has anything to say."""
        for _ in range(5):
            summary = await self.run(**settings)
            if not any(tally.published or tally.applied for tally in summary.clusters.values()):
                return
        raise AssertionError(f"still something to say: {summary}")

    async def run_until_older(self, admin: AdminClient, topic: TopicName) -> None:
        """Run until a topic is certainly older than what a scan finds from now on."""
        await until_older(admin, topic, self.run)

    @contextmanager
    def follower(
        self, folder: Path, *flags: str, only: ClusterConnection | None = None, ahead: float = 0.0, **options: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A follower in a process of its own, of all the clusters or one; what it says is in `follower-….log`.

        Its host's clock is `ahead` by so many seconds.
        """
        command = [sys.executable, "-m", "tests.support.shifted_follower", str(ahead), "sync-metadata"]
        command += [connection.admin_url for connection in ([only] if only else self.connections)]
        command += ["--follow", "--yes", *flags, "--event-topic", str(self.request.event_topic)]
        command += [part for tenant in self.request.selection.tenants for part in ("--select", tenant)]
        command += [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
        log = folder / f"follower-{os.urandom(3).hex()}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            until(lambda: b"Following" in log.read_bytes() or process.poll() is not None, "the follower began")
            assert process.poll() is None, log.read_text()
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def send(self, connection: ClusterConnection, content: bytes, key: str = "any") -> None:
        """Put something on the event topic past us."""
        client = open_client(connection)
        producer = client.create_producer(str(self.request.event_topic))
        producer.send(content, partition_key=key)
        client.close()

    def dead_letters(self, connection: ClusterConnection) -> list[Mapping[str, str]]:
        """The properties of each message that could not be applied on a cluster."""
        client = open_client(connection)
        reader = client.create_reader(str(self.request.dead_letters), pulsar.MessageId.earliest)
        letters = []
        while reader.has_message_available():
            letters.append(dict(reader.read_next(5000).properties()))
        client.close()
        return letters

    async def read_again(self, admin: AdminClient) -> None:
        """Let the cluster have all events of its topic once more."""
        await admin.post(f"{self.request.event_topic.subscription_path(SUBSCRIPTION)}/resetcursor/0")

    async def remove(self, *admins: AdminClient) -> None:
        """Take the event topic away, so that the clusters know nothing of each other."""
        topic = self.request.event_topic
        for admin in admins:
            own = await admin.cluster_name()
            with suppress(FleetError):
                await admin.post(f"/namespaces/{topic.namespace.path}/replication", [own])
        for admin in admins:
            own = await admin.cluster_name()
            with suppress(FleetError):
                await admin.delete(f"/namespaces/{topic.namespace.path}", force=True)
                await admin.delete(f"/tenants/{topic.namespace.tenant}")
            for peer in await admin.clusters():
                if peer != own:
                    await admin.delete(f"/clusters/{peer}")


def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait for something that happens soon."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)


async def becomes(read: Callable[[], Awaitable[object]], value: object, seconds: float = 60.0) -> None:
    """Wait for a value that comes soon."""
    end = time.monotonic() + seconds
    while (present := await read()) != value:
        assert time.monotonic() < end, f"{present} did not become {value}"
        await asyncio.sleep(0.1)


def namespaces_of(tenant: str, count: int) -> list[NamespaceName]:
    return [NamespaceName(tenant, f"n{number}") for number in range(count)]
