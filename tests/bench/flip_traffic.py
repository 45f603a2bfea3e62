"""Two ways to flip namespaces from blue to green under traffic: by Pulsar's documentation, and by the runbook."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.applications import Flow
from tests.support.replication import know_each_other
from tests.support.waits import monitor_until_drained

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import CUT_OVER
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.prepare.target import prepare
from pulsar_fleet.migration.proof.steps import verify_copy
from pulsar_fleet.migration.request import QUIESCE_SECONDS
from pulsar_fleet.migration.steps import (
    check_gates,
    cut_over,
    freeze_blue,
    recheck_gates,
    replication_progress,
    restore_blue,
    start_replication,
)
from pulsar_fleet.preflight.waivers import Waiver
from pulsar_sandbox import Sandbox
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION

ENTER = Path(__file__).parent / "clients" / "enter.py"
DRAIN_SECONDS = 90.0
COPY_SECONDS = 60.0
BROKERS = int(os.environ.get("PULSAR_FLEET_BENCH_BROKERS", "1"))


@dataclass(slots=True)
class Flipped:
    """The result of a flip.

    :param began: before the producers were touched, microseconds since 1970.
    :param predicted: topic → messages delivered on both clusters to each subscription with consumers.
    :param complaints: why it did not end well, by namespace.
    """

    began: int = 0
    predicted: Counter[TopicName] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


async def make(connection: ClusterConnection, flows: Iterable[Flow], policies: Mapping[str, object]) -> None:
    """The topics and subscriptions on a cluster."""
    async with AdminClient(connection) as admin:
        await _make(admin, flows, "earliest", policies)


async def _make(
    admin: AdminClient, flows: Iterable[Flow], position: str | None, policies: Mapping[str, object]
) -> None:
    own = await admin.cluster_name()
    for flow in flows:
        namespace = flow.topic.namespace
        if namespace.tenant not in await admin.tenants():
            await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        if await admin.namespace(namespace) is None:
            await admin.put_namespace(namespace, {"replication_clusters": [own], **policies})
        if flow.partitions:
            await admin.create_partitioned_topic(flow.topic, flow.partitions)
        else:
            await admin.create_topic(flow.topic)
        for name in flow.subscriptions if position else ():
            for stored in flow.stored:
                await admin.create_subscription(stored, name, position or "")


async def replicate_by_hand(sides: Sides, flows: Sequence[Flow]) -> None:
    """What a careful operator does beforehand where history is to be copied: topics on green, both in blue's list."""
    async with sides.open() as (blue, green):
        await know_each_other(blue, green)
        await _make(green, flows, None, {})
        for namespace in _namespaces(flows):
            allowed = {"adminRoles": [], "allowedClusters": ["blue", "green"]}
            await blue.post(f"/tenants/{namespace.tenant}", allowed)
            await blue.post(f"/namespaces/{namespace.path}/replication", ["blue", "green"])


async def by_hand(sides: Sides, flows: Sequence[Flow], replicated: Sequence[Flow] = ()) -> Flipped:
    """As Pulsar's documentation says: everything is on green, the address is stored, the namespaces are flagged.

    :param replicated: of the flows, those that `replicate_by_hand` prepared: their subscriptions are made at the end.
    """
    async with sides.open() as (blue, green):
        await _make(green, [flow for flow in flows if flow not in replicated], "earliest", {})
        address = {"serviceUrl": sides.green.admin_url, "brokerServiceUrl": sides.green.service_url}
        flipped = Flipped(began=_now())
        await blue.post(f"/clusters/{await blue.cluster_name()}/migrate", address, migrated=False)
        for flow in replicated:
            for name in flow.subscriptions:
                await green.create_subscription(flow.topic, name, "latest")
        for namespace in _namespaces(flows):
            await blue.post(f"/namespaces/{namespace.path}/migration", True)
    return flipped


async def by_runbook(
    sides: Sides,
    flows: Sequence[Flow],
    folder: Path,
    strategy: Strategy | None = None,
    *,
    quiesce_seconds: float = QUIESCE_SECONDS,
    drain_seconds: float = DRAIN_SECONDS,
    waivers: Sequence[Waiver] = (),
) -> Flipped:
    """The steps of the DAG `migrate_namespaces` until the drain has ended, without the scheduler."""
    run = Run(folder.name, Ledger.open(f"sqlite:///{folder}.db"), Artefacts.open(str(folder)))
    run.ledger.start_run(run.id, "migrate_namespaces", {})
    reference, _ = await check_gates(sides, run, _namespaces(flows), strategy, waivers=waivers)
    moves = Moves.from_json(run.artefacts.read_json(reference))
    await prepare(sides, run, moves)
    await recheck_gates(sides, run, moves, expected=Expectations(), waivers=waivers)
    before = OriginalSettings.from_json(run.artefacts.read_json(await freeze_blue(sides, run, moves)))
    flipped = Flipped()
    try:
        await start_replication(sides, run, moves)
        await _copied(sides, run, moves)
        await verify_copy(sides, run, moves)
        flipped.began = _now()
        switching = cut_over(sides, run, moves, before, quiesce_seconds=quiesce_seconds, proof_max_age_minutes=60)
        switched = run.artefacts.read_json(await switching)
        await monitor_until_drained(sides, run, moves, seconds=drain_seconds, poll_seconds=1)
    except FleetError as error:
        flipped.complaints.append(str(error))
        stored = run.artefacts.find(run.id, CUT_OVER)
        switched = run.artefacts.read_json(stored) if stored else {}
    finally:
        await restore_blue(sides, run, before, delete_topics=False)
    for done in switched.values():
        for partition, count in done["duplicates"].items():
            flipped.predicted[TopicName.parse(partition).parent] += count
    return flipped


async def _copied(sides: Sides, run: Run, moves: Moves) -> None:
    end = time.monotonic() + COPY_SECONDS
    while not (progress := await replication_progress(sides, run, moves))[0]:
        if time.monotonic() > end:
            raise Unavailable(f"The copy did not catch up within {COPY_SECONDS:.0f} s: {progress[1]}")
        await asyncio.sleep(0.2)


async def missing_on_green(sides: Sides, flows: Iterable[Flow]) -> tuple[set[TopicName], set[tuple[TopicName, str]]]:
    """Topics without their producer, and topic and subscription without a consumer, on any partition, on green."""
    producers: set[TopicName] = set()
    consumers: set[tuple[TopicName, str]] = set()
    async with sides.open() as (_blue, green):
        for flow in flows:
            for stored in flow.stored:
                stats = await green.stats(stored)
                if not stats["publishers"]:
                    producers.add(flow.topic)
                for name in flow.subscriptions:
                    if not (stats["subscriptions"].get(name) or {}).get("consumers"):
                        consumers.add((flow.topic, name))
    return producers, consumers


def fenced(url: str, flows: Iterable[Flow]) -> list[str]:
    """Topics and partitions that a new producer cannot enter through blue."""
    stored = [str(topic) for flow in flows for topic in flow.stored]
    result = subprocess.run(
        [sys.executable, str(ENTER), url, *stored], capture_output=True, text=True, check=True, timeout=120
    )
    return list(json.loads(result.stdout))


@contextmanager
def new_sides(folder: Path, *, brokers: int = BROKERS, **settings: str) -> Iterator[Sides]:
    """Two new clusters: a flip by hand leaves blue in a state in which the next one would not be the same.

    :param brokers: of each cluster; with more than one the bookie is a process of its own.
    :param settings: of their brokers, over those of the sandbox.
    """
    names = ("blue", "green")
    versions, own = os.environ.get("PULSAR_FLEET_BENCH_VERSION", DEFAULT_VERSION), dict.fromkeys(names, settings)
    with Sandbox.start(folder, clusters=names, version=versions, brokers=brokers, settings=own) as sandbox:
        blue, green = (
            ClusterConnection(name=name, admin_url=sandbox[name].admin_url, service_url=sandbox[name].service_url)
            for name in names
        )
        yield Sides(blue, green)


def _namespaces(flows: Iterable[Flow]) -> list[NamespaceName]:
    return sorted({flow.topic.namespace for flow in flows}, key=str)


def _now() -> int:
    return time.time_ns() // 1000
