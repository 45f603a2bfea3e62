"""A namespace with non-persistent topics moves like any other: these store nothing, and are never terminated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.waits import monitor_until_drained, wait_replicated, wait_repointed

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.freeze import find_original_settings

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "strategy", [Strategy.REDIRECT, pytest.param(Strategy.REPOINT, marks=pytest.mark.long)], ids=str
)
async def test_a_namespace_with_non_persistent_topics_moves(
    strategy: Strategy,
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    run = Run("moved", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "files")))
    sides, name = Sides(blue, green, 5.0), new_namespace()
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"]})
    await on_blue.create_partitioned_topic(TopicName(name, "events"), 2)
    await on_blue.put(f"/non-persistent/{name.path}/beats/partitions", 2)
    client = open_client(blue)
    ticks = client.create_producer(f"non-persistent://{name}/ticks")
    reading = client.subscribe(f"non-persistent://{name}/beats", "meter")
    ticks.send(b"0")

    reference, findings = await steps.check_gates(sides, run, [name], strategy, expected=Expectations())
    assert "non-persistent-topic" in {finding.id for finding in findings}
    moves = Moves.from_json(run.artefacts.read_json(reference))
    assert f"non-persistent://{name}/ticks" in map(str, moves.moves[0].topics)
    await steps.prepare_green(sides, run, moves)
    await steps.freeze_blue(sides, run, moves)
    await steps.start_replication(sides, run, moves)
    await wait_replicated(sides, run, moves, seconds=30, poll_seconds=0.5, progress=str)
    await steps.verify_copy(sides, run, moves)
    if not strategy.redirects:
        reading.close()
        ticks.close()
        await wait_repointed(sides, run, moves, seconds=30, poll_seconds=0.5, progress=str)
    original = find_original_settings(run)
    assert original is not None
    await steps.cut_over(sides, run, moves, original, proof_max_age_minutes=60)
    await monitor_until_drained(sides, run, moves, seconds=60, poll_seconds=1)
    await steps.verify_messages(sides, run, moves)
    await steps.clean_up_blue(sides, run, moves, original)
    await steps.restore_blue(sides, run, original, delete_topics=True)
    assert run.ledger.last_phase(str(name)) == Phase.FINISHED
    await asyncio.to_thread(client.close)
