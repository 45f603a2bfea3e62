"""A comparison in Spark survives kill -9 of an executor, of the driver and of a broker, and reads nothing twice.

PULSAR_FLEET_KILL_POINTS: how many random moments, each with the next victim in turn, 1 unless set.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.contract.verification.test_job import findings
from tests.support.replication import make_alone
from tests.support.spark_submission import RunningJob

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.checkpoints import Checkpoints
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification.messages.recheck import recheck
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import freeze_bounds, store_request, verify_in_process
from pulsar_sandbox import Sandbox

pytestmark = pytest.mark.versions

JOB = Path(__file__).parents[3] / "spark_jobs" / "verify_messages.py"
MASTERS = {"executor": "local-cluster[2,1,1024]", "driver": "local[2]", "broker": "local[2]"}
"""By who is killed; executors are two processes with a core each, as on machines of their own."""

POINTS = int(os.environ.get("PULSAR_FLEET_KILL_POINTS", "1"))
SEED = int(os.environ.get("PULSAR_FLEET_KILL_SEED", "11"))
TOPICS, MESSAGES, BYTES = 10, 40, 1_000
SLOWLY = 50_000
"""Bytes per second of a broker, so that there is time to kill."""

WAIT_SECONDS = 200


@dataclass(frozen=True)
class Ground:
    """Topics on two clusters of which one differs, and what an undisturbed comparison says of them."""

    blue: ClusterConnection
    green: ClusterConnection
    request: VerifyRequest
    undisturbed: Verification


@pytest.fixture(scope="module")
def ground(blue: ClusterConnection, green: ClusterConnection) -> Ground:
    """Written once; nothing is written later."""
    return asyncio.run(_ground(blue, green))


@asynccontextmanager
async def _admins(blue: ClusterConnection, green: ClusterConnection) -> AsyncIterator[list[AdminClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(AdminClient(connection)) for connection in (blue, green)]


async def _ground(blue: ClusterConnection, green: ClusterConnection) -> Ground:
    namespace = NamespaceName(f"test-{os.urandom(5).hex()}", "killed")
    async with _admins(blue, green) as admins:
        for admin in admins:
            await make_alone(admin, namespace)
        await asyncio.to_thread(_write, (blue, green), namespace)
        request = await freeze_bounds(*admins, [namespace], max_bytes_per_second=SLOWLY)
        # One topic a range, one range a task: many moments between two of them.
        request = replace(request, entries_per_range=MESSAGES)
        unlimited = replace(request, max_bytes_per_second=None)
        return Ground(blue, green, request, await verify_in_process(*admins, unlimited))


def _write(sides: Sequence[ClusterConnection], namespace: NamespaceName) -> None:
    for number, side in enumerate(sides):
        client = open_client(side)
        for topic in range(TOPICS):
            producer = client.create_producer(
                str(TopicName(namespace, f"t{topic:02}")), batching_enabled=False, producer_name="checkout"
            )
            for message in range(MESSAGES):
                altered = number == 1 and topic == TOPICS - 1 and message == MESSAGES // 2
                producer.send_async((b"?" if altered else b"x") * BYTES, None, partition_key=f"k{message}")
            producer.flush()
        client.close()


@pytest.mark.long
@pytest.mark.parametrize(("point", "victim"), [(point, [*MASTERS][point % 3]) for point in range(POINTS)])
async def test_a_killed_comparison_goes_on_to_the_same_verdict(
    victim: str, point: int, ground: Ground, clusters: Sandbox, records: Path, ended: ExitStack
) -> None:
    chance = random.Random(f"{SEED}-{victim}-{point}")
    request, result = store_request(Run.open("verify/killed"), ground.request)
    kept = Checkpoints.next_to(result, ground.request.identity())
    job = RunningJob(JOB, request, result, ground.blue, ground.green, records, ended, master=MASTERS[victim])
    job.until_reading(Path(kept.uri))
    await asyncio.sleep(chance.uniform(0, 4))
    async with _admins(ground.blue, ground.green) as admins:
        finished, before = await _finished(admins, kept, ground)
        if victim == "executor":
            job.kill_executor(chance)
        elif victim == "driver":
            job.kill_driver()
        else:
            clusters["blue"].kill()
            await asyncio.to_thread(clusters["blue"].restart)
            before = dict.fromkeys(before, 0)
        logs = [job.log]
        if victim == "driver" or await asyncio.to_thread(job.end):
            store_request(Run.open("verify/killed"), replace(ground.request, max_bytes_per_second=None))
            job = RunningJob(JOB, request, result, ground.blue, ground.green, records, ended, master=MASTERS[victim])
            logs.append(job.log)
            assert await asyncio.to_thread(job.end) == 0, job.log.read_text()[-3000:]
        assert 0 < len(finished) < 2 * TOPICS
        assert {part: await _delivered(admins, part) for part in finished} == before
        verification = await recheck(*admins, ground.request, Verification.from_bytes(Path(result).read_bytes()))
    assert re.search(r"INFO .*: \d+ of \d+ Spark tasks have ended", "".join(log.read_text() for log in logs))
    assert findings(verification) == findings(ground.undisturbed)
    assert verification.verdict is Verdict.DIFFERENT


Finished = tuple[Side, TopicName]


async def _finished(
    admins: Sequence[AdminClient], kept: Checkpoints, ground: Ground
) -> tuple[set[Finished], dict[Finished, int]]:
    """Topics that were read, per side, and how many messages their brokers have delivered by now."""
    # The last topic differs: its messages are read once more, to name them.
    finished = {
        (side, TopicName.parse(ground.request.pairs[pair].topic))
        for side in Side
        for pair, _ in kept.load(side)
        if pair != TOPICS - 1
    }
    return finished, {part: await _delivered(admins, part) for part in finished}


async def _delivered(admins: Sequence[AdminClient], part: Finished) -> int:
    side, topic = part
    return int((await admins[0 if side is Side.SOURCE else 1].stats(topic))["msgOutCounter"])
