"""A proof above a size is read by a Spark job; where the job is killed, the proof goes on to the same verdict.

PULSAR_FLEET_KILL_POINTS: how many random moments, each with the next victim in turn, 2 unless set.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.migration import forget_migrations
from tests.support.spark_cluster import SparkCluster, standalone_cluster
from tests.support.spark_submission import RunningJob
from tests.support.waits import wait_replicated

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.checkpoints import Checkpoints
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.artefacts import COPY_PROOF
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.proof.reader import ProofReader
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import REQUEST

JOB = Path(__file__).parents[3] / "spark_jobs" / "verify_messages.py"
VICTIMS = ("driver", "executor")
POINTS = int(os.environ.get("PULSAR_FLEET_KILL_POINTS", "2"))
SEED = int(os.environ.get("PULSAR_FLEET_KILL_SEED", "11"))
TOPICS, MESSAGES, BYTES, LATER = 10, 40, 1_000, 3
SLOWLY = 50_000
"""Bytes per second of a broker, so that there is time to kill."""

FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@dataclass(frozen=True)
class Copied:
    """A namespace whose messages green has; the run that copied them."""

    sides: Sides
    run: Run
    moves: Moves

    @property
    def topics(self) -> list[TopicName]:
        return sorted(self.moves.moves[0].partitions)

    async def prove(self, reader: ProofReader) -> str:
        """The counts of the proof, or why it proves nothing."""
        try:
            return str(await steps.verify_copy(self.sides, self.run, self.moves, reader=reader))
        except PreconditionFailed as error:
            return str(error)

    @property
    def request(self) -> bytes:
        reference = self.run.artefacts.find(self.run.id, f"{COPY_PROOF}/{REQUEST}")
        assert reference is not None
        return self.run.artefacts.read(reference)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def copied(blue: ClusterConnection, green: ClusterConnection, tmp_path_factory: pytest.TempPathFactory) -> list[Copied]:
    """Two namespaces that are copied; of one, green lost the messages of the last topic afterwards."""
    folder, sides = tmp_path_factory.mktemp("records"), Sides(blue, green, 5.0)
    return [asyncio.run(_copy(sides, folder, lost)) for lost in (False, True)]


async def _copy(sides: Sides, folder: Path, lost: bool) -> Copied:
    name = NamespaceName(f"test-{os.urandom(5).hex()}", "large")
    topics = [TopicName(name, f"t{number:02}") for number in range(TOPICS)]
    run = Run(str(name), Ledger.open(f"sqlite:///{folder / 'ledger.db'}"), Artefacts.open(str(folder / "files")))
    async with sides.open() as (on_blue, on_green):
        await forget_migrations(on_blue, on_green)
        for admin in (on_blue, on_green):
            await admin.put(
                f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [await admin.cluster_name()]}
            )
        await on_blue.put_namespace(name, {"replication_clusters": [await on_blue.cluster_name()]})
        await on_blue.post(f"/namespaces/{name.path}/retention", FOREVER)
        await asyncio.to_thread(publish, sides.blue, topics, MESSAGES)
        reference, _ = await steps.check_gates(sides, run, [name], None, expected=Expectations())
        moves = Moves.from_json(run.artefacts.read_json(reference))
        await steps.prepare_green(sides, run, moves)
        await steps.recheck_gates(sides, run, moves, expected=Expectations())
        await steps.freeze_blue(sides, run, moves)
        await steps.start_replication(sides, run, moves)
        if lost:
            await _replicated(sides, run, moves)
            await on_green.put(f"/{topics[-1].path}/unload")  # a ledger is closed: what follows is in another one
            await asyncio.to_thread(publish, sides.blue, topics[-1:], LATER)
        await _replicated(sides, run, moves)
        if lost:
            await on_green.delete(f"/{topics[-1].path}/truncate")
    return Copied(sides, run, moves)


async def _replicated(sides: Sides, run: Run, moves: Moves) -> None:
    await wait_replicated(sides, run, moves, seconds=60, poll_seconds=0.5, progress=str)


def publish(connection: ClusterConnection, topics: list[TopicName], count: int) -> None:
    client = open_client(connection)
    for topic in topics:
        producer = client.create_producer(str(topic), batching_enabled=False)
        for number in range(count):
            producer.send_async(b"x" * BYTES, None, partition_key=f"k{number}")
        producer.flush()
    client.close()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", range(POINTS))
async def test_a_proof_whose_job_was_killed_goes_on_to_the_same_verdict(
    point: int, copied: list[Copied], spark: SparkCluster, records: Path, ended: ExitStack
) -> None:
    chance, victim, copy = random.Random(f"{SEED}-{point}"), VICTIMS[point % 2], copied[point // 2 % 2]
    undisturbed = await copy.prove(ProofReader())
    submitted: list[RunningJob] = []

    def submit(request: str, result: str) -> RunningJob:
        job = RunningJob(JOB, request, result, copy.sides.blue, copy.sides.green, records, ended, master=spark.master)
        submitted.append(job)
        return job

    async def killed(request: str, result: str) -> None:
        job = submit(request, result)
        read = VerifyRequest.from_bytes(copy.request)
        await asyncio.to_thread(job.until_reading, Path(Checkpoints.next_to(result, read.identity()).uri))
        await asyncio.sleep(chance.uniform(0, 4))
        if victim == "executor":
            spark.kill_executor(chance)
        else:
            job.kill_driver()
        if victim == "driver" or await asyncio.to_thread(job.end):
            raise Unavailable("the job ended without a result")

    async def goes_on(request: str, result: str) -> None:
        job = submit(request, result)
        assert await asyncio.to_thread(job.end) == 0, job.log.read_text()[-3000:]

    slowly = {"job_above": 0, "max_bytes_per_second": SLOWLY}
    try:
        verdict = await copy.prove(ProofReader(job=killed, **slowly))
    except Unavailable:
        compared = copy.request
        verdict = await copy.prove(ProofReader(job=goes_on, **slowly))
        assert copy.request == compared
        assert "were read by an earlier attempt" in submitted[-1].log.read_text()
    if victim == "driver":
        assert len(submitted) == 2
    assert verdict == undisturbed
    assert ("not verified as equal" in verdict) is (copy is copied[1])
