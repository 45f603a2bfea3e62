"""Seconds, calls and broker CPU of a run of reconciliation that finds nothing, and of one that finds 100 changes."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from pathlib import Path

import psutil
from tests.support.reconciler import SETTERS, Reconciler, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
from pulsar_sandbox import Sandbox

NAMESPACES = int(os.environ.get("PULSAR_FLEET_BENCH_NAMESPACES", "1000"))
CHANGED = 50


def test_reconcile(clusters: Sandbox, blue: ClusterConnection, green: ClusterConnection, records: Path) -> None:
    asyncio.run(_measure(clusters, blue, green))


async def _measure(clusters: Sandbox, blue: ClusterConnection, green: ClusterConnection) -> None:
    tenant, chance = f"bench-{uuid.uuid4().hex[:8]}", random.Random(1)
    names = [NamespaceName(tenant, f"n-{number}") for number in range(NAMESPACES)]
    keeper = Reconciler.of(tenant, blue, green)
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        await make_namespaces(names, on_blue, on_green)
        for title in ("first look", "nothing to do", "nothing to do"):
            await _cycle(title, clusters, keeper)
        for name in names[:CHANGED]:
            for path, _ in chance.sample(SETTERS, 2):
                await set_policy(chance.choice((on_blue, on_green)), name, path, chance.randint(1, 1000))
        drift, repaired = await _cycle(f"{2 * CHANGED} changes past us", clusters, keeper)
        assert repaired is not None
        assert (drift.fields, repaired.repaired) == (2 * CHANGED, 2 * CHANGED)
        again, _ = await _cycle("nothing left", clusters, keeper)
        assert again.drifting == 0


async def _cycle(title: str, clusters: Sandbox, keeper: Reconciler) -> tuple[DriftSummary, RepairSummary | None]:
    brokers = [psutil.Process(pid) for cluster in clusters for pid in cluster.pids if pid]
    before, began, own = _cpu(brokers), time.perf_counter(), time.process_time()
    drift, repaired = await keeper.cycle()
    seconds, own = time.perf_counter() - began, time.process_time() - own
    calls = sum(drift.calls.values()) + sum(repaired.calls.values() if repaired else ())
    print(
        f"\n{title:24} {NAMESPACES:,} namespaces: {seconds:6.2f} s, looking {drift.seconds:6.2f} s, {calls:,} calls "
        f"({max(drift.calls.values()) / NAMESPACES:.2f} a namespace and cluster to look), "
        f"broker CPU {_cpu(brokers) - before:6.2f} s, our CPU {own:6.2f} s"
    )
    return drift, repaired


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)
