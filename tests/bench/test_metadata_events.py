"""How long a change takes from one cluster to the other with a follower, what following costs, and a drain of many."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
import uuid
from pathlib import Path

import psutil
from tests.support.event_exchange import Exchange, namespaces_of
from tests.support.reconciler import MAX_PRODUCERS, held, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent
from pulsar_fleet.policy_sync.events.versions import EXISTS, FieldVersion, ResourceVersions, Version
from pulsar_sandbox import Sandbox

NAMESPACES = int(os.environ.get("PULSAR_FLEET_BENCH_NAMESPACES", "100"))
CHANGES = int(os.environ.get("PULSAR_FLEET_BENCH_CHANGES", "60"))
EVENTS = int(os.environ.get("PULSAR_FLEET_BENCH_EVENTS", "10000"))
RATES = os.environ.get("PULSAR_FLEET_BENCH_RATES", "0").split(",")
"""Calls of a look in a second, on each cluster; 0 for as many as it answers."""
IDLE_SECONDS = 15


def test_lag_of_a_follower(clusters: Sandbox, blue: ClusterConnection, green: ClusterConnection, records: Path) -> None:
    asyncio.run(_lag(clusters, blue, green, records))


def test_drain(clusters: Sandbox, blue: ClusterConnection, green: ClusterConnection, records: Path) -> None:
    asyncio.run(_drain(clusters, blue, green))


async def _lag(clusters: Sandbox, blue: ClusterConnection, green: ClusterConnection, records: Path) -> None:
    tenant, chance = f"bench-{uuid.uuid4().hex[:8]}", random.Random(1)
    names = namespaces_of(tenant, NAMESPACES)
    exchange = Exchange.of(tenant, blue, green)
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        await make_namespaces(names, on_blue, on_green)
        began = time.perf_counter()
        await exchange.settle()
        print(f"\nfirst runs until quiet, {NAMESPACES:,} namespaces: {time.perf_counter() - began:.1f} s")
        for step, rate in enumerate(RATES):
            began = time.perf_counter()
            with exchange.follower(records, "--json", calls_per_second=rate) as process:
                await asyncio.sleep(3)
                idle = await _idle(clusters, process.pid)
                lags = []
                for number in range(CHANGES):
                    source, target = chance.sample((on_blue, on_green), 2)
                    lags.append(await _carried(source, target, chance.choice(names), step * CHANGES + number + 1))
                    await asyncio.sleep(chance.random())
                seconds = time.perf_counter() - began
            tallies = _told(records)
            lags.sort()
            print(
                f"{NAMESPACES:,} namespaces, at most {rate} calls/s, {CHANGES} changes: "
                f"p50 {lags[len(lags) // 2]:.2f} s, p99 {lags[int(len(lags) * 0.99)]:.2f} s, most {lags[-1]:.2f} s; "
                f"without changes {idle}; "
                f"a look takes {seconds * len(tallies) / max(sum(tally['scans'] for tally in tallies), 1):.2f} s, "
                f"{sum(tally['scan_calls'] for tally in tallies) / len(tallies) / seconds:.0f} calls/s on each cluster"
            )
        await exchange.remove(on_blue, on_green)


def _told(folder: Path) -> list[JsonObject]:
    """What the follower that ended last counted, cluster by cluster."""
    newest = max(folder.glob("follower-*.log"), key=lambda log: log.stat().st_mtime).read_text()
    return list(json.loads(newest[newest.index('{\n "state"') :])["clusters"].values())


async def _carried(source: AdminClient, target: AdminClient, name: NamespaceName, value: int) -> float:
    """Seconds from the answer to a setter on one cluster until the other shows the value."""
    path, field = MAX_PRODUCERS
    await set_policy(source, name, path, value)
    began = time.perf_counter()
    while (await held(target, name, (field,)))[field] != value:
        assert time.perf_counter() - began < 60
        await asyncio.sleep(0.02)
    return time.perf_counter() - began


async def _idle(clusters: Sandbox, pid: int) -> str:
    brokers = [psutil.Process(pid) for cluster in clusters for pid in cluster.pids if pid]
    ours = psutil.Process(pid)
    before, own = _cpu(brokers), _cpu([ours])
    await asyncio.sleep(IDLE_SECONDS)
    used = [(_cpu(brokers) - before) / IDLE_SECONDS, (_cpu([ours]) - own) / IDLE_SECONDS]
    return f"brokers of 2 clusters {used[0]:.2f} cores, the follower {used[1]:.2f}"


async def _drain(clusters: Sandbox, blue: ClusterConnection, green: ClusterConnection) -> None:
    tenant, field = f"bench-{uuid.uuid4().hex[:8]}", MAX_PRODUCERS[1]
    names = namespaces_of(tenant, NAMESPACES)
    exchange = Exchange.of(tenant, blue, green)
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        await make_namespaces(names, on_blue, on_green)
        await exchange.settle()
        at, last = int(time.time() * 1000), dict.fromkeys(names, 0)
        client = open_client(blue)
        producer = client.create_producer(str(exchange.request.event_topic), block_if_queue_full=True)
        for number in range(EVENTS):
            name = names[number % NAMESPACES]
            last[name] = number + 1
            versions = ResourceVersions(fields={key: FieldVersion("", Version(at + number, "red")) for key in (field,)})
            item = (Resource.NAMESPACE, str(name))
            event = MetadataChangeEvent.of(item, {EXISTS: True, field: number + 1}, versions, {})
            event.data["values"].pop(EXISTS)
            producer.send_async(event.encode(), lambda *_: None, partition_key=event.key)
        producer.flush()
        client.close()
        brokers = [psutil.Process(pid) for cluster in clusters for pid in cluster.pids if pid]
        before, began = _cpu(brokers), time.perf_counter()
        summary = await exchange.run()
        seconds = time.perf_counter() - began
        counts = [
            (name, tally["applied"], tally["dropped"], tally["refused"]) for name, tally in summary["clusters"].items()
        ]
        print(
            f"\n{EVENTS:,} events of {NAMESPACES:,} namespaces, each cluster: {seconds:.1f} s, "
            f"{2 * EVENTS / seconds:,.0f} events/s, broker CPU {_cpu(brokers) - before:.1f} s, "
            f"{counts}"
        )
        for admin in (on_blue, on_green):
            for name in names:
                assert (await held(admin, name, (field,)))[field] == last[name]
        await exchange.remove(on_blue, on_green)


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)
