"""The proof at the end of a migration continues the one before the cut-over: it reads only what came in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.migration import forget_migrations, publish
from tests.support.waits import wait_replicated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.artefacts import COPY_VERDICT
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_sandbox.workload.live import NumberedMessage

pytestmark = pytest.mark.cluster

STORED, LATER = 60, 7
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


class Moving:
    """A namespace whose stored messages are copied, up to its cut-over."""

    def __init__(self, sides: Sides, run: Run, topic: TopicName) -> None:
        self.sides, self.run, self.topic = sides, run, topic

    def publish(self, first: int, count: int) -> None:
        numbered = [NumberedMessage("writer", "key", number, 1) for number in range(first, first + count)]
        publish(self.sides.blue, self.topic, numbered)

    async def copy(self) -> Moves:
        sides, run = self.sides, self.run
        reference, _ = await steps.check_gates(sides, run, [self.topic.namespace], None, expected=Expectations())
        moves = Moves.from_json(run.artefacts.read_json(reference))
        await steps.prepare_green(sides, run, moves)
        await steps.recheck_gates(sides, run, moves, expected=Expectations())
        await steps.freeze_blue(sides, run, moves)
        await steps.start_replication(sides, run, moves)
        await wait_replicated(sides, run, moves, seconds=60, poll_seconds=0.5, progress=str)
        assert await steps.verify_copy(sides, run, moves) == {"messages": STORED}
        return moves

    async def cut_over(self, moves: Moves) -> None:
        before = find_original_settings(self.run)
        assert before is not None
        await steps.cut_over(self.sides, self.run, moves, before, proof_max_age_minutes=5)


@pytest.fixture
async def moving(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[[AdminClient, NamespaceName], Awaitable[None]],
    tmp_path: Path,
) -> AsyncIterator[Moving]:
    await forget_migrations(on_blue, on_green)
    name = new_namespace()
    await make_namespace(on_blue, name)
    await on_blue.post(f"/namespaces/{name.path}/retention", FOREVER)
    topic = TopicName(name, "events")
    await on_blue.create_topic(topic)
    run = Run("moved", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "files")))
    prepared = Moving(Sides(blue, green, 5.0), run, topic)
    prepared.publish(0, STORED)
    yield prepared
    await forget_migrations(on_blue, on_green)


@pytest.mark.long
async def test_what_was_proven_before_the_cut_over_is_not_read_again(moving: Moving) -> None:
    moves = await moving.copy()
    moving.publish(STORED, LATER)
    await moving.cut_over(moves)
    verified = await steps.verify_messages(moving.sides, moving.run, moves)
    assert verified == {"verdict": "equal", "messages": STORED + LATER, "read": LATER, "repeated": 0}
    # A second call, and one without the first proof, come to the same verdict.
    assert await steps.verify_messages(moving.sides, moving.run, moves) == verified
    moving.run.artefacts.write(moving.run.id, COPY_VERDICT, b"{}")
    whole = await steps.verify_messages(moving.sides, moving.run, moves)
    assert whole == {"verdict": "equal", "messages": STORED + LATER, "read": STORED + LATER, "repeated": 0}


async def test_messages_that_green_lost_after_the_first_proof_are_missed(moving: Moving, on_green: AdminClient) -> None:
    moves = await moving.copy()
    await on_green.put(f"/{moving.topic.path}/unload")  # a ledger is closed: what follows is in another one
    moving.publish(STORED, LATER)
    await moving.cut_over(moves)
    await on_green.delete(f"/{moving.topic.path}/truncate")
    assert (await on_green.internal_stats(moving.topic))["numberOfEntries"] == LATER
    with pytest.raises(PreconditionFailed, match="not verified as equal"):
        await steps.verify_messages(moving.sides, moving.run, moves)
