"""How a comparison grows: with the messages of a topic, in time and memory, and with the number of topics.

PULSAR_FLEET_BENCH_MESSAGES (default 100000,1000000) and PULSAR_FLEET_BENCH_TOPICS (default 10,100,1000), lists.
Thousands of topics need brokers with more heap than the sandbox's: _JAVA_OPTIONS=-Xmx2000m.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pulsar
import pytest
from tests.bench.flip_traffic import new_sides
from tests.support.raw_store import RawStore
from tests.support.replication import know_each_other, make_alone, replicate, wait_linked
from tests.support.spark_submission import submit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import store_request

MESSAGES = [int(text) for text in os.environ.get("PULSAR_FLEET_BENCH_MESSAGES", "100000,1000000").split(",")]
TOPICS = [int(text) for text in os.environ.get("PULSAR_FLEET_BENCH_TOPICS", "10,100,1000").split(",")]
BATCH = 100
IN_A_SMALL_TOPIC = 20
FEW = 5
JOB = Path(__file__).parents[2] / "spark_jobs" / "verify_messages.py"


@pytest.mark.parametrize("messages", MESSAGES)
async def test_messages(blue: ClusterConnection, green: ClusterConnection, tmp_path: Path, messages: int) -> None:
    namespace = NamespaceName(f"bench-{uuid.uuid4().hex[:8]}", "growth")
    topic = TopicName(namespace, "events")
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        await know_each_other(on_blue, on_green)
        await replicate(on_blue, on_green, namespace)
        for admin in (on_green, on_blue):
            await admin.create_topic(topic)
        await wait_linked(on_blue, [topic], "green")
        await asyncio.to_thread(_fill, blue, str(topic), messages)
        async with asyncio.timeout(400):
            while (await on_green.internal_stats(topic))["entriesAddedCounter"] < messages // BATCH:
                await asyncio.sleep(0.5)
    print(f"\n{messages:,} messages of 100 B on each side, {BATCH} in an entry, one process")
    for engine in ("entry", "message"):
        measured = measure(blue, green, namespace, engine, tmp_path / "request.json")
        assert (measured["verdict"], measured["messages"]) == ("equal", messages)
        rate = 2 * messages / measured["read"]
        cpu = measured["read_cpu"] / (2 * messages) * 1e6
        print(
            f"  {engine:7}  {measured['read']:6.1f} s, {rate:12,.0f} messages/s, {cpu:6.2f} CPU-s per million, "
            f"{measured['megabytes']} MB at most"
        )


def _fill(connection: ClusterConnection, topic: str, messages: int) -> None:
    """One entry that a producer wrote, stored again and again."""
    client = open_client(connection)
    producer = client.create_producer(
        topic,
        compression_type=pulsar.CompressionType.LZ4,
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=10_000,
    )
    for number in range(BATCH):
        producer.send_async(b"%020d" % number * 5, None, partition_key=f"key-{number}", properties={"n": "1"})
    producer.flush()
    client.close()
    with closing(RawStore(connection)) as store:
        ledger = first_ledger(connection, topic)
        entry = store.content(topic, Position(ledger, 0))
        store.store(topic, entry, messages=BATCH, times=messages // BATCH - 1)


def first_ledger(connection: ClusterConnection, topic: str) -> int:
    async def ask() -> int:
        async with AdminClient(connection) as admin:
            return int((await admin.internal_stats(TopicName.parse(topic)))["ledgers"][0]["ledgerId"])

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Two clusters with Pulsar's own settings where the sandbox's go through every loaded topic once or twice a second,
    which takes most of a core with 10,000 topics.
    """
    never = {"clusterMigrationCheckDurationSeconds": "0", "bookkeeperExplicitLacIntervalInMills": "0"}
    with new_sides(tmp_path_factory.mktemp("many"), **never) as both:
        yield both


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("topics", TOPICS)
async def test_topics(sides: Sides, records: Path, tmp_path: Path, topics: int) -> None:
    """In one process, then the same request in Spark, two tasks at a time; a job on few topics tells what Spark's own
    start takes.
    """
    blue, green = sides.blue, sides.green
    namespaces = {count: NamespaceName(f"bench-{uuid.uuid4().hex[:8]}", "many") for count in (topics, FEW)}
    for count, namespace in namespaces.items():
        await asyncio.gather(*(_fill_alone(connection, namespace, count) for connection in (blue, green)))
    measured = {
        count: await asyncio.to_thread(measure, blue, green, name, "auto", tmp_path / f"{count}")
        for count, name in namespaces.items()
    }
    for count, result in measured.items():
        assert (result["verdict"], result["messages"]) == ("equal", count * IN_A_SMALL_TOPIC)
    seconds = {
        count: await asyncio.to_thread(_in_spark, blue, green, records, tmp_path / f"{count}") for count in namespaces
    }
    alone = {phase: measured[topics][phase] / (2 * topics) * 1000 for phase in ("freeze", "read", "read_cpu", "check")}
    print(
        f"\n{topics:,} topics of {IN_A_SMALL_TOPIC} messages, each topic and side: {alone['freeze']:.2f} ms to freeze, "
        f"{alone['check']:.2f} ms to check again\n"
        f"  in one process {alone['read']:.2f} ms to read ({alone['read_cpu']:.2f} ms CPU), "
        f"{measured[topics]['megabytes']} MB at most\n"
        f"  in Spark {(seconds[topics] - seconds[FEW]) / (2 * (topics - FEW)) * 1000:.2f} ms to read "
        f"({seconds[topics]:.1f} s; with {FEW} topics {seconds[FEW]:.1f} s)"
    )


def _in_spark(blue: ClusterConnection, green: ClusterConnection, records: Path, request_file: Path) -> float:
    """Seconds of the job, from its submission to its end."""
    request = VerifyRequest.from_bytes(request_file.read_bytes())
    # Several tasks a side, as for larger topics.
    divided = replace(request, entries_per_range=max(1, len(request.pairs) // 8))
    handed = store_request(Run.open(f"bench/{request_file.name}"), divided)
    began = time.monotonic()
    job = submit(JOB, ["--request", handed[0], "--result", handed[1]], blue, green, records)
    ended = time.monotonic()
    assert job.returncode == 0, job.stdout[-2000:]
    assert Verification.from_bytes(Path(handed[1]).read_bytes()).verdict is Verdict.EQUAL
    return ended - began


async def _fill_alone(connection: ClusterConnection, namespace: NamespaceName, topics: int) -> None:
    async with AdminClient(connection) as admin:
        await make_alone(admin, namespace)
    await asyncio.to_thread(_fill_small, connection, namespace, topics)


def _fill_small(connection: ClusterConnection, namespace: NamespaceName, topics: int) -> None:
    client = open_client(connection)
    scratch = str(TopicName(namespace, "t00000"))
    producer = client.create_producer(
        scratch, batching_enabled=True, batching_max_messages=IN_A_SMALL_TOPIC, batching_max_publish_delay_ms=10_000
    )
    for number in range(IN_A_SMALL_TOPIC):
        producer.send_async(b"order-%d" % number, None, partition_key=f"k{number}")
    producer.flush()
    client.close()
    with closing(RawStore(connection)) as store:
        entry = store.content(scratch, Position(first_ledger(connection, scratch), 0))
        for number in range(1, topics):
            store.store(str(TopicName(namespace, f"t{number:05}")), entry, messages=IN_A_SMALL_TOPIC)


def measure(
    blue: ClusterConnection, green: ClusterConnection, namespace: NamespaceName, engine: str, request_file: Path
) -> dict[str, float]:
    """Compare in a process of its own; the frozen request is left in a file."""
    sides = [f"{connection.admin_url},{connection.service_url}" for connection in (blue, green)]
    command = [sys.executable, "-m", "tests.bench.verify_pair", *sides, str(namespace), engine, str(request_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1400)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))
