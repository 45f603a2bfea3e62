"""Clusters that replicate namespaces in healthy and in bad states, for tests of the doctor."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pulsar
from tests.support.replication import know_each_other

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.replication.doctor.model import Examination, RemedyCall
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.replication.doctor.steps import examine

Json = dict[str, Any]
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@dataclass
class World:
    """Clusters by name, and clients of them; what is made here has a tenant for each state."""

    admins: Mapping[str, AdminClient]
    clients: Mapping[str, pulsar.Client]
    suffix: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    open: list[Any] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.admins)

    def namespace(self, state: str) -> NamespaceName:
        return NamespaceName(f"{state}-{self.suffix}", "orders")

    async def make(
        self,
        state: str,
        *clusters: str,
        policies: Mapping[str, Json] | None = None,
        allowed: Sequence[str] = (),
    ) -> NamespaceName:
        """A namespace on these clusters, which replicates nowhere yet; its tenant allows them all."""
        name, names = self.namespace(state), clusters or self.names[:2]
        for cluster in names:
            admin = self.admins[cluster]
            allowed_clusters = [*names, *allowed]
            if await admin.tenant(name.tenant) is None:
                await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": allowed_clusters})
            own = {"replication_clusters": [cluster], "retention_policies": FOREVER}
            await admin.put_namespace(name, own | dict((policies or {}).get(cluster, {})))
        return name

    async def replicate(self, name: NamespaceName, *clusters: str, on: Sequence[str] = ()) -> None:
        """Store the list of these clusters; on all of them, or only on some."""
        for cluster in on or clusters:
            await self.admins[cluster].post(f"/namespaces/{name.path}/replication", list(clusters))

    async def create(self, topic: TopicName, *clusters: str, partitions: int = 0) -> None:
        """Make the topic on these clusters, which must not replicate it yet: else a replicator may be the first."""
        for cluster in clusters or self.names[:2]:
            if partitions:
                await self.admins[cluster].create_partitioned_topic(topic, partitions)
            else:
                await self.admins[cluster].create_topic(topic)

    async def send(
        self, cluster: str, topic: TopicName, count: int = 5, size: int = 10, schema: Any = None, value: Any = None
    ) -> None:
        def work() -> None:
            options = {"schema": schema} if schema else {}
            producer = self.clients[cluster].create_producer(str(topic), batching_enabled=False, **options)
            for _ in range(count):
                producer.send(value if schema else b"x" * size)
            producer.close()

        await asyncio.to_thread(work)

    async def consume(self, cluster: str, topic: TopicName, subscription: str = "billing", **options: Any) -> None:
        def work() -> Any:
            return self.clients[cluster].subscribe(str(topic), subscription, **options)

        self.open.append(await asyncio.to_thread(work))

    async def waiting(self, topic: TopicName, source: str, target: str) -> None:
        """Until the replicator has its cursor: what is published from now on waits for it."""
        async with asyncio.timeout(60):
            while f"pulsar.repl.{target}" not in (await self.admins[source].internal_stats(topic))["cursors"]:
                await asyncio.sleep(0.2)

    async def linked(self, topic: TopicName, source: str = "", target: str = "") -> None:
        """Until the replicator is connected and has sent everything."""
        first, second = source or self.names[0], target or self.names[1]
        async with asyncio.timeout(90):
            while True:
                link = (await self.admins[first].stats(topic))["replication"].get(second) or {}
                if link.get("connected") and not link["replicationBacklog"]:
                    return
                await asyncio.sleep(0.2)

    async def examine(self, *states: str, others: Sequence[ClusterConnection] = (), **settings: Any) -> Examination:
        """What the doctor says about these states, on these clusters and others."""
        selection = Selection.parse([self.namespace(state).tenant for state in states])
        connections = [admin.connection for admin in self.admins.values()]
        connections += others
        return await examine(connections, Request(selection=selection, **settings))

    async def send_calls(self, calls: Sequence[RemedyCall]) -> None:
        for remedy in calls:
            await self.admins[remedy.cluster].send(remedy.call)


async def arrived(connection: ClusterConnection, topic: TopicName) -> int:
    """How many messages a cluster has stored in a topic, or in all its partitions, and still has."""

    def read() -> int:
        client = open_client(connection)
        try:
            reader = client.create_reader(str(topic), pulsar.MessageId.earliest)
            count = 0
            while reader.has_message_available():
                reader.read_next(5000)
                count += 1
            return count
        finally:
            # What was read counts, also where the connection is gone by then.
            with suppress(pulsar.NotConnected):
                client.close()

    return await asyncio.to_thread(read)


def filled(calls: Sequence[RemedyCall], values: Json) -> list[RemedyCall]:
    """The calls as a person sends them: with these values, by key, where a call asks for one."""
    return [replace(remedy, call=replace(remedy.call, body=_filled(remedy.call.body, values))) for remedy in calls]


def _filled(body: Any, values: Json) -> Any:
    if not isinstance(body, dict):
        return body
    return {key: values[key] if str(value).startswith("<") else value for key, value in body.items()}


@asynccontextmanager
async def world_of(connections: Sequence[ClusterConnection]) -> AsyncIterator[World]:
    """A world of these clusters; consumers and producers that it opened are closed at the end."""
    async with AsyncExitStack() as stack:
        admins = {
            connection.name: await stack.enter_async_context(AdminClient(connection)) for connection in connections
        }
        clients = {name: open_client(admin.connection) for name, admin in admins.items()}
        world = World(admins, clients)
        try:
            yield world
        finally:
            world.closing.set()
            for thread in world.threads:
                await asyncio.to_thread(thread.join)
            for client in clients.values():
                await asyncio.to_thread(client.close)


async def know_all(world: World) -> None:
    """Make every cluster known to every other."""
    admins = list(world.admins.values())
    for number, first in enumerate(admins):
        for second in admins[number + 1 :]:
            await know_each_other(first, second)


async def set_peer(admin: AdminClient, name: str, data: Json) -> None:
    """Store the data of a cluster so that brokers use it: they keep the client of data that is only changed."""
    if name in await admin.clusters():
        await admin.delete(f"/clusters/{name}")
    await admin.put_cluster(name, data)


def avro(name: str, **fields: str) -> Json:
    """The body of an Avro schema for the admin API."""
    parts = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {
        "type": "AVRO",
        "schema": json.dumps({"type": "record", "name": name, "fields": parts}),
        "properties": {},
    }


Seed = Callable[[World], Awaitable[None]]


async def seed_states(world: World, states: Mapping[str, Seed], at_once: int = 4) -> None:
    """Make every state; what one of them cannot make is an error of all."""
    few = asyncio.Semaphore(at_once)

    async def seed(name: str, state: Seed) -> None:
        try:
            async with few:
                await state(world)
        except Exception as error:
            error.add_note(f"state {name}")
            raise

    await asyncio.gather(*(seed(name, state) for name, state in states.items()))
