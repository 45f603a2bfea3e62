"""A proof by the task itself beside one by a Spark job on a cluster of two workers, at three sizes.

PULSAR_FLEET_BENCH_PROOFS (default 40000,400000,4000000): messages on each side, over eight topics; up to a million they
are also stored alone, 1 kB each, else in entries of 100, 100 B each.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.bench.test_verify_growth import JOB, first_ledger, measure
from tests.support.raw_store import RawStore
from tests.support.replication import make_alone
from tests.support.spark_cluster import SparkCluster, standalone_cluster
from tests.support.spark_submission import RunningJob

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import store_request

SIZES = [int(text) for text in os.environ.get("PULSAR_FLEET_BENCH_PROOFS", "40000,400000,4000000").split(",")]
TOPICS = 8


@dataclass(frozen=True)
class Stored:
    """How messages are stored: so many in an entry, of so many bytes each."""

    in_entry: int
    size: int


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stored", [Stored(1, 1000), Stored(100, 100)], ids=["alone", "batched"])
@pytest.mark.parametrize("messages", SIZES)
async def test_task_and_job(
    blue: ClusterConnection,
    green: ClusterConnection,
    spark: SparkCluster,
    records: Path,
    tmp_path: Path,
    ended: ExitStack,
    messages: int,
    stored: Stored,
) -> None:
    if stored.in_entry == 1 and messages > 1_000_000:
        pytest.skip("minutes to write")
    namespace = NamespaceName(f"bench-{uuid.uuid4().hex[:8]}", "proof")
    await asyncio.gather(*(_fill(connection, namespace, messages, stored) for connection in (blue, green)))
    bytes_stored = await _stored_bytes(blue, namespace)
    task = await asyncio.to_thread(measure, blue, green, namespace, "auto", tmp_path / "request")
    assert (task["verdict"], task["messages"]) == ("equal", messages)
    seconds = await asyncio.to_thread(_by_job, blue, green, spark, records, tmp_path / "request", ended)
    print(
        f"\n{messages:,} messages of {stored.size} B on each side, {stored.in_entry} in an entry, "
        f"{bytes_stored >> 20:,} MiB: task {task['read']:.1f} s ({messages / task['read']:,.0f} messages/s, "
        f"{bytes_stored / task['read'] / 2**20:.1f} MiB/s), job {seconds:.1f} s"
    )


def _by_job(
    blue: ClusterConnection,
    green: ClusterConnection,
    spark: SparkCluster,
    records: Path,
    request_file: Path,
    ended: ExitStack,
) -> float:
    """Seconds of the job, from its submission to its end."""
    request = VerifyRequest.from_bytes(request_file.read_bytes())
    uri, result = store_request(Run.open(f"bench/{uuid.uuid4().hex[:8]}"), request)
    began = time.monotonic()
    job = RunningJob(JOB, uri, result, blue, green, records, ended, master=spark.master)
    assert job.end(1200) == 0, job.log.read_text()[-2000:]
    seconds = time.monotonic() - began
    assert Verification.from_bytes(Path(result).read_bytes()).verdict is Verdict.EQUAL
    return seconds


async def _fill(connection: ClusterConnection, namespace: NamespaceName, messages: int, stored: Stored) -> None:
    async with AdminClient(connection) as admin:
        await make_alone(admin, namespace)
    await asyncio.to_thread(_fill_topics, connection, namespace, messages, stored)


def _fill_topics(connection: ClusterConnection, namespace: NamespaceName, messages: int, stored: Stored) -> None:
    """One entry that a producer wrote to each topic, stored again and again."""
    client = open_client(connection)
    topics = [str(TopicName(namespace, f"t{number}")) for number in range(TOPICS)]
    for topic in topics:
        producer = client.create_producer(
            topic,
            batching_enabled=stored.in_entry > 1,
            batching_max_messages=max(2, stored.in_entry),
            batching_max_publish_delay_ms=10_000,
        )
        for number in range(stored.in_entry):
            producer.send_async(
                random.Random(number).randbytes(stored.size), None, partition_key=f"key-{number}", properties={"n": "1"}
            )
        producer.flush()
    client.close()
    for topic in topics:
        with closing(RawStore(connection)) as store:
            entry = store.content(topic, Position(first_ledger(connection, topic), 0))
            store.store(topic, entry, messages=stored.in_entry, times=messages // TOPICS // stored.in_entry - 1)


async def _stored_bytes(connection: ClusterConnection, namespace: NamespaceName) -> int:
    async with AdminClient(connection) as admin:
        stats = [await admin.stats(TopicName(namespace, f"t{number}")) for number in range(TOPICS)]
    return sum(int(entry["storageSize"]) for entry in stats)
