"""A snapshot's calls, wall time and CPU, beside the same calls in a bare loop and with a process for each."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import httpx
import pulsar
from httpx_aiohttp import AiohttpTransport

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.transport import Transport
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, jars_for

NAMESPACES = int(os.environ.get("PULSAR_FLEET_BENCH_NAMESPACES", "100"))
TOPICS = int(os.environ.get("PULSAR_FLEET_BENCH_TOPICS", "10"))
CONNECTIONS = 8
KEPT = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}
ROUNDS = 2
PROCESSES = 10
JVMS = 3
LIBRARY_CALLS = 1_000
JSON = {"Content-Type": "application/json"}
REDACTOR = Redactor(b"a key of the bench")
Fetch = Callable[[str], Awaitable[Json]]


@dataclass(frozen=True)
class Cost:
    """What some work took: seconds of wall time, seconds of this process' CPU."""

    wall: float
    cpu: float


async def cost_of(work: Awaitable[object]) -> Cost:
    wall, cpu = time.monotonic(), time.process_time()
    await work
    return Cost(time.monotonic() - wall, time.process_time() - cpu)


class Recording(AdminClient):
    """Remembers what it was asked, so that a bare loop can ask the same."""

    def __init__(self, connection: ClusterConnection) -> None:
        super().__init__(connection)
        self.urls: list[str] = []

    async def internal_info(self, topic: TopicName, *, answered_retry_seconds: float | None = None) -> Json:
        self.urls.append(f"{self.connection.admin_url}/admin/v2/{topic.path}/internal-info")
        return await super().internal_info(topic, answered_retry_seconds=answered_retry_seconds)

    async def get(self, path: str, **params: str | int | bool) -> Json:
        query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in params.items()}
        self.urls.append(f"{self.connection.admin_url}/admin/v2{path}" + (f"?{urlencode(query)}" if query else ""))
        return await super().get(path, **params)


async def test_snapshot(blue: ClusterConnection, tmp_path: Path) -> None:
    async with estate(blue) as tenant:
        async with Recording(blue) as admin:
            snapshot = await collect(admin, Selection(tenants=frozenset({tenant})), redactor=REDACTOR)
        report_calls(snapshot)
        names = [namespace.name for namespace in snapshot.namespaces]
        floors, ours = [], []
        for _ in range(ROUNDS):
            floors.append(await cost_of(bare_snapshot(blue, admin.urls, names)))
            ours.append(await cost_of(one_snapshot(blue, tenant)))
        report_times(floors, ours)
        fastest = min(cost.wall for cost in ours)
        per_call = {"curl": processes(admin.urls), "the Java admin client": jvms(blue, names[0], tmp_path)}
        for tool, seconds in per_call.items():
            whole = seconds * snapshot.calls
            print(f"a process per call, {tool}: {whole:.0f} s (extrapolated), {whole / fastest:.0f} × the snapshot")
        for name, cost in [(name, await cost) for name, cost in libraries(blue, admin.urls[-LIBRARY_CALLS:])]:
            calls = min(LIBRARY_CALLS, len(admin.urls))
            print(f"{name:28} {calls / cost.wall:7,.0f} calls/s  {1000 * cost.cpu / calls:5.2f} ms CPU a call")


def report_calls(snapshot: Snapshot) -> None:
    assert (len(snapshot.namespaces), len(snapshot.topics)) == (NAMESPACES, NAMESPACES * TOPICS)
    fixed = snapshot.calls - 6 * NAMESPACES - 2 * NAMESPACES * TOPICS
    print(f"\n{NAMESPACES} namespaces × {TOPICS} topics: {snapshot.calls:,} calls, {fixed} beside 6 and 2 for each")


def report_times(floors: Sequence[Cost], ours: Sequence[Cost]) -> None:
    for name, costs in (("bare loop (floor)", floors), ("snapshot", ours)):
        print(f"{name:28} " + "  ".join(f"{cost.wall:6.2f} s wall {cost.cpu:6.2f} s CPU" for cost in costs))
    floor, best = (min(costs, key=lambda cost: cost.wall) for costs in (floors, ours))
    print(f"{'snapshot : floor':28} {best.wall / floor.wall:6.2f} wall  {best.cpu / floor.cpu:6.2f} CPU")


async def one_snapshot(connection: ClusterConnection, tenant: str) -> None:
    async with AdminClient(connection) as admin:
        await collect(admin, Selection(tenants=frozenset({tenant})), redactor=REDACTOR)


async def bare_snapshot(connection: ClusterConnection, urls: Sequence[str], names: Sequence[str]) -> None:
    """The same HTTP calls and the same passes over the events topics, without anything around them."""
    passes = asyncio.to_thread(bare_passes, connection, names)
    async with aiohttp.ClientSession() as session:
        await asyncio.gather(drain(urls, bare_fetch(session)), passes)


def bare_passes(connection: ClusterConnection, names: Sequence[str]) -> None:
    client = pulsar.Client(connection.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))

    def read(name: str) -> None:
        reader = client.create_reader(
            f"persistent://{name}/__change_events", pulsar.MessageId.earliest, is_read_compacted=True
        )
        while reader.has_message_available():
            reader.read_next()
        reader.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(read, names))
    client.close()


async def drain(urls: Iterable[str], fetch: Fetch) -> None:
    waiting = iter(urls)

    async def work() -> None:
        for url in waiting:
            await fetch(url)

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))


def bare_fetch(session: aiohttp.ClientSession) -> Fetch:
    async def fetch(url: str) -> Json:
        async with session.get(url) as answer:
            content = await answer.read()
            return json.loads(content) if content else None

    return fetch


def by_client(client: httpx.AsyncClient) -> Fetch:
    async def fetch(url: str) -> Json:
        response = await client.get(url)
        return response.json() if response.content else None

    return fetch


def by_request(client: httpx.AsyncClient) -> Fetch:
    timeouts = {"timeout": {"connect": 60, "read": 60}}

    async def fetch(url: str) -> Json:
        response = await client.send(httpx.Request("GET", url, headers=JSON, extensions=timeouts))
        return response.json() if response.content else None

    return fetch


def by_transport(transport: httpx.AsyncBaseTransport) -> Fetch:
    async def fetch(url: str) -> Json:
        response = await transport.handle_async_request(httpx.Request("GET", url, headers=JSON))
        return response.json() if await response.aread() else None

    return fetch


def by_admin(admin: AdminClient) -> Fetch:
    return lambda url: admin.get(url.partition("/admin/v2")[2])


def libraries(connection: ClusterConnection, urls: Sequence[str]) -> Iterator[tuple[str, Awaitable[Cost]]]:
    """What the same calls cost in each way to make them, from a bare library to `AdminClient`."""

    async def measured(client: Any, fetch_by: Callable[[Any], Fetch]) -> Cost:
        async with client:
            return await cost_of(drain(urls, fetch_by(client)))

    yield "httpx", measured(httpx.AsyncClient(timeout=60), by_client)
    yield "httpx on aiohttp, get", measured(httpx.AsyncClient(transport=AiohttpTransport()), by_client)
    yield "httpx on aiohttp, send", measured(httpx.AsyncClient(transport=AiohttpTransport()), by_request)
    yield "httpx-aiohttp alone", measured(AiohttpTransport(), by_transport)
    yield "Transport", measured(Transport(connection), by_transport)
    yield "AdminClient", measured(AdminClient(connection), by_admin)
    yield "aiohttp", measured(aiohttp.ClientSession(), bare_fetch)


def processes(urls: Sequence[str]) -> float:
    """Seconds that a call takes when each is a process of its own, as with a command line tool."""
    began = time.monotonic()
    for url in urls[-PROCESSES:]:
        subprocess.run(["curl", "-s", "-o", os.devnull, url], check=True)
    return (time.monotonic() - began) / PROCESSES


def jvms(connection: ClusterConnection, namespace: str, folder: Path) -> float:
    """The same with a JVM for each call, on the library that `pulsar-admin` uses."""
    program = Path(__file__).with_name("OneCall.java")
    path = f"{jars_for(DEFAULT_VERSION)}/*:{folder}"
    subprocess.run(["javac", "-cp", path, "-d", folder, program], check=True)
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, program.stem, connection.admin_url, namespace]
    began = time.monotonic()
    for _ in range(JVMS):
        subprocess.run(command, check=True, capture_output=True)
    return (time.monotonic() - began) / JVMS


@asynccontextmanager
async def estate(connection: ClusterConnection) -> AsyncIterator[str]:
    """A tenant with the namespaces and plain topics, all of them loaded. It is deleted at the end."""
    tenant, base = f"bench-{uuid.uuid4().hex[:8]}", f"{connection.admin_url}/admin/v2"
    names = [f"{tenant}/n{number:04}" for number in range(NAMESPACES)]
    async with aiohttp.ClientSession(headers=JSON, timeout=aiohttp.ClientTimeout(120)) as session:

        def send(method: str, body: Json = None) -> Fetch:
            async def call(path: str) -> None:
                async with session.request(method, base + path, json=body) as answer:
                    assert answer.status < 300, (method, path, await answer.text())

            return call

        own = (await bare_fetch(session)(f"{base}/brokers/configuration/runtime"))["clusterName"]
        await send("PUT", {"adminRoles": [], "allowedClusters": [own]})(f"/tenants/{tenant}")
        try:
            document = {"bundles": {"numBundles": 1}, "inactive_topic_policies": KEPT}
            await drain([f"/namespaces/{name}" for name in names], send("PUT", document))
            # They stay loaded: a broker that takes a bundle again loads all its topics, which would be measured too.
            await drain([f"/persistent/{name}/t{topic}" for name in names for topic in range(TOPICS)], send("PUT", {}))
            yield tenant
        finally:
            await drain([f"/namespaces/{name}?force=true" for name in names], send("DELETE"))
            await send("DELETE")(f"/tenants/{tenant}?force=true")
