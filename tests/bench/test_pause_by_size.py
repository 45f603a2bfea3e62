"""The publish pause of a namespace's cut-over by its number of partitions, on two new clusters of one broker each.

One partitioned topic, a producer that writes to all partitions in turn, *redirect*.
PULSAR_FLEET_BENCH_PARTITIONS: the sizes, a list (default 24,100,200,500,1000).
PULSAR_FLEET_BENCH_RATE: messages/s over all partitions (default 200).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from itertools import pairwise
from pathlib import Path

import pulsar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.namespace_cutover import CutOverResult
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_sandbox import Sandbox

SIZES = [int(text) for text in os.environ.get("PULSAR_FLEET_BENCH_PARTITIONS", "24,100,200,500,1000").split(",")]
RATE = int(os.environ.get("PULSAR_FLEET_BENCH_RATE", "200"))
WARM_SECONDS = 5.0


class Writer:
    """Publishes to the partitions in turn; `times` has when each message was acknowledged."""

    def __init__(self, connection: ClusterConnection, topic: TopicName) -> None:
        self.times: list[float] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(connection, topic), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join(60)

    def pause(self) -> float:
        """The longest time without an acknowledgment."""
        return max(after - before for before, after in pairwise(sorted(self.times)))

    def _run(self, connection: ClusterConnection, topic: TopicName) -> None:
        client = open_client(connection)
        producer = client.create_producer(
            str(topic),
            batching_enabled=False,
            block_if_queue_full=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        )
        while not self._ending.is_set():
            producer.send_async(b"0", self._acknowledged)
            time.sleep(1 / RATE)
        producer.flush()
        client.close()

    def _acknowledged(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            self.times.append(time.monotonic())


def test_the_publish_pause_by_number_of_partitions(tmp_path: Path) -> None:
    rows = []
    with Sandbox.start(tmp_path / "clusters", clusters=("blue", "green")) as sandbox:
        sides = Sides(*(_connection(sandbox, name) for name in ("blue", "green")), 5.0)
        for size in SIZES:
            rows.append(asyncio.run(_cut_over(sides, size, tmp_path / str(size))))
    print("\n| partitions | throttled, s | longest pause of the producer, s |\n| --- | --- | --- |")
    for size, throttled, pause in rows:
        print(f"| {size:,} | {throttled:.1f} | {pause:.1f} |")


def _connection(sandbox: Sandbox, name: str) -> ClusterConnection:
    return ClusterConnection(name=name, admin_url=sandbox[name].admin_url, service_url=sandbox[name].service_url)


async def _cut_over(sides: Sides, size: int, folder: Path) -> tuple[int, float, float]:
    folder.mkdir()
    run = Run(f"size-{size}", Ledger.open(f"sqlite:///{folder / 'ledger.db'}"), Artefacts.open(str(folder / "files")))
    name = NamespaceName(f"bench{size}", "orders")
    topic = TopicName(name, "events")
    async with AdminClient(sides.blue) as blue:
        await blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
        await blue.put_namespace(name, {"replication_clusters": ["blue"]})
        await blue.create_partitioned_topic(topic, size)
    writer = Writer(sides.blue, topic)
    while len(writer.times) < size:
        await asyncio.sleep(0.5)
    await asyncio.sleep(WARM_SECONDS)
    reference, _ = await steps.check_gates(sides, run, [name], Strategy.REDIRECT, expected=Expectations())
    moves = Moves.from_json(run.artefacts.read_json(reference))
    await steps.prepare_green(sides, run, moves)
    await steps.freeze_blue(sides, run, moves)
    await steps.verify_copy(sides, run, moves)
    original = find_original_settings(run)
    assert original is not None
    cut = CutOverResult.from_json(run.artefacts.read_json(await steps.cut_over(sides, run, moves, original))[str(name)])
    await asyncio.sleep(WARM_SECONDS)
    await asyncio.to_thread(writer.end)
    await steps.restore_blue(sides, run, original, delete_topics=True)
    return size, cut.throttled_seconds, writer.pause()
