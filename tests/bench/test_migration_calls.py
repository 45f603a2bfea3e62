"""Admin calls and memory of a whole migration: per partition, and per polling interval while the drain lasts.

Each topic has a subscription, every other topic is partitioned; one topic of each namespace has a message that its
consumer acknowledges only 75 s after the switch, so that the drain lasts that long. Numbers by environment:
`PULSAR_FLEET_BENCH_TOPICS` (1,000), `PULSAR_FLEET_BENCH_NAMESPACES` (20), `PULSAR_FLEET_BENCH_PARTITIONS` (4; with 0
all topics are plain). So many topics want brokers with more memory than the sandbox gives them:
`_JAVA_OPTIONS=-Xmx2000m`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pulsar
import pytest
from tests.bench.flip_traffic import new_sides

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.clusters import Sides

TOPICS = int(os.environ.get("PULSAR_FLEET_BENCH_TOPICS", "1000"))
NAMESPACES = int(os.environ.get("PULSAR_FLEET_BENCH_NAMESPACES", "20"))
PARTITIONS = int(os.environ.get("PULSAR_FLEET_BENCH_PARTITIONS", "4"))
HELD_SECONDS = 75.0
ALLOWED = 12
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Estate:
    """Namespaces with as many topics each; the first topic of each is in use."""

    names: Sequence[NamespaceName]
    topics: int

    def of(self, name: NamespaceName) -> dict[TopicName, int]:
        """The topics of one namespace, and their partition counts."""
        return {TopicName(name, f"t-{number:04}"): PARTITIONS * (number % 2) for number in range(self.topics)}

    @property
    def partitions(self) -> int:
        return sum(max(count, 1) for name in self.names for count in self.of(name).values())


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Two clusters that go through every loaded topic each 5 s for the flag, and never for explicit LAC: the sandbox's
    own periods take most of a core with so many topics.
    """
    seldom = {"clusterMigrationCheckDurationSeconds": "5", "bookkeeperExplicitLacIntervalInMills": "0"}
    with new_sides(tmp_path_factory.mktemp("many"), **seldom) as both:
        yield both


# Ten times as many topics beside the first size: memory that grows with them is seen as that.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("topics", [TOPICS // 10, TOPICS])
def test_calls(topics: int, sides: Sides, tmp_path: Path) -> None:
    blue, green = sides.blue, sides.green
    tenant = f"bench-{uuid4().hex[:8]}"
    count = max(NAMESPACES * topics // TOPICS, 2)
    estate = Estate([NamespaceName(tenant, f"n-{number:02}") for number in range(count)], topics // count)
    asyncio.run(_make(blue, estate))
    with _Consumers(blue, estate) as consumers:
        reports = list(_migrate(blue, green, estate, tmp_path, consumers))
    steps = [step for step in reports if "step" in step]
    end = reports[-1]
    total = sum(step["calls"] for step in steps)
    shape = f"{count * estate.topics:,} topics with {estate.partitions:,} partitions in {count} namespaces"
    print(f"\n{shape}, {end['strategies']}, {end['polls']} polls of the drain")
    print(f"{'step':22} {'calls':>7} {'per partition':>14} {'seconds':>8} {'VmHWM MB':>9}")
    for step in steps:
        calls = step["calls"] / estate.partitions
        print(f"{step['step']:22} {step['calls']:7,} {calls:14.2f} {step['seconds']:8.1f} {step['peak_mb']:9.0f}")
    print(f"{'all':22} {total:7,} {total / estate.partitions:14.2f}")
    kinds = sum((Counter(step["kinds"]) for step in steps), Counter())
    print("by kind:", ", ".join(f"{kind} {n / estate.partitions:.2f}" for kind, n in kinds.most_common(24)))
    if os.environ.get("PULSAR_FLEET_BENCH_KINDS"):
        for step in steps:
            print(step["step"], step["kinds"])
    if topics == TOPICS:
        assert total / estate.partitions <= ALLOWED


async def _make(blue: ClusterConnection, estate: Estate) -> None:
    async with AdminClient(blue) as admin:
        await admin.put(f"/tenants/{estate.names[0].tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
        for name in estate.names:
            await admin.put_namespace(name, {"replication_clusters": ["blue"]})
            await asyncio.gather(*(_make_topic(admin, *topic) for topic in estate.of(name).items()))


async def _make_topic(admin: AdminClient, topic: TopicName, partitions: int) -> None:
    await (admin.create_partitioned_topic(topic, partitions) if partitions else admin.create_topic(topic))
    await admin.create_subscription(topic, "work")


def _migrate(
    blue: ClusterConnection, green: ClusterConnection, estate: Estate, folder: Path, consumers: _Consumers
) -> Iterator[dict[str, Any]]:
    sides = [
        json.dumps({"name": connection.name, "admin_url": connection.admin_url, "service_url": connection.service_url})
        for connection in (blue, green)
    ]
    command = [sys.executable, "-m", "tests.bench.migration_controller", *sides, str(folder), *map(str, estate.names)]
    errors = folder / "controller.log"
    with (
        errors.open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=REPOSITORY, env=dict(os.environ)
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            report = json.loads(line)
            if report.get("signal") == "cut_over":
                consumers.acknowledge_after(HELD_SECONDS)
            else:
                yield report
    assert process.returncode == 0, errors.read_text()[-3000:]


class _Consumers:
    """A consumer on the first topic of each namespace, each a client of its own, and a message that it holds."""

    def __init__(self, blue: ClusterConnection, estate: Estate) -> None:
        self._url = blue.require_service_url()
        self._topics = [str(next(iter(estate.of(name)))) for name in estate.names]
        self._clients: list[pulsar.Client] = []
        self._unread: list[tuple[pulsar.Consumer, pulsar.Message]] = []

    def __enter__(self) -> _Consumers:
        writing = self._connect()
        for topic in self._topics:
            consumer = self._connect().subscribe(topic, "work")
            producer = writing.create_producer(topic)
            producer.send(b"one")
            producer.close()
            self._unread.append((consumer, consumer.receive(20_000)))
        return self

    def acknowledge_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._acknowledge)
        timer.daemon = True
        timer.start()

    def _connect(self) -> pulsar.Client:
        self._clients.append(pulsar.Client(self._url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)))
        return self._clients[-1]

    def _acknowledge(self) -> None:
        for consumer, message in self._unread:
            consumer.acknowledge(message)

    def __exit__(self, *error: object) -> None:
        for client in self._clients:
            client.close()
