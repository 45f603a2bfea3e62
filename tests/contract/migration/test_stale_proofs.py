"""Cut-overs that are refused for what changed since the gates or the proof, and what their text says to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.contract.migration.test_cleared_tasks import copy, migrate, prepare, switch
from tests.support.migration import LATE, publish
from tests.support.raw_store import RawStore

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.protocol import frames
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.abort import abort_migration
from pulsar_fleet.migration.artefacts import BASELINE
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.procedure import Migration
from pulsar_sandbox.workload.live import NumberedMessage

MESSAGES = [NumberedMessage(LATE, "key", number, 1) for number in range(10)]
VERIFY_AGAIN = "clear the task verify_copy and its downstream tasks"


@pytest.fixture
async def topic(blue: ClusterConnection, on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]) -> TopicName:
    """A topic whose backlog is copied before the cut-over."""
    late = TopicName(new_namespace(), LATE)
    await on_blue.put(f"/tenants/{late.namespace.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(late.namespace, {"replication_clusters": ["blue"]})
    await on_blue.create_topic(late)
    await on_blue.create_subscription(late, LATE)
    await asyncio.to_thread(publish, blue, late, MESSAGES)
    return late


@pytest.fixture
def begin(blue: ClusterConnection, green: ClusterConnection, tmp_path: Path) -> Callable[[str, TopicName], Migration]:
    """A new run for the namespace of a topic."""
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")

    def start(run_id: str, topic: TopicName) -> Migration:
        conf = {"blue": "blue", "green": "green", "namespaces": [str(topic.namespace)]}
        run = Run(run_id, ledger, Artefacts.open(str(tmp_path / "stored")))
        migration = Migration.of(conf, Sides(blue, green), run)
        ledger.start_run(run.id, migration.NAME, conf)
        return migration

    return start


async def refuse(migration: Migration, moves: Moves, original: OriginalSettings, finding: str, does: str) -> None:
    """The cut-over names the finding and what to do, and has changed nothing."""
    with pytest.raises(PreconditionFailed) as error:
        await migration.cut_over(moves, original)
    assert f"BLOCKER {finding}" in str(error.value)
    assert does in str(error.value)
    async with migration.sides.open() as (blue, _green):
        assert not (await blue.namespace(moves.moves[0].namespace) or {})["migrated"]


@pytest.mark.long
async def test_a_proof_that_is_verified_again_lets_the_run_cut_over(
    topic: TopicName, begin: Callable[[str, TopicName], Migration], on_blue: AdminClient, on_green: AdminClient
) -> None:
    migration, name = begin("verified again", topic), topic.namespace
    sides, run = migration.sides, migration.run
    moves = await prepare(migration)
    original = await copy(migration, moves)

    run.artefacts.write_json(run.id, BASELINE, {})
    await refuse(migration, moves, original, "no-proof", VERIFY_AGAIN)
    await steps.verify_copy(sides, run, moves)

    does = f"take the change back, or make it on the other cluster too. Then verify again: {VERIFY_AGAIN}"
    limit = f"/namespaces/{name.path}/maxProducersPerTopic"
    await on_blue.post(limit, 7)
    await refuse(migration, moves, original, "settings-changed", does)
    await on_blue.delete(limit)
    await steps.verify_copy(sides, run, moves)
    await on_blue.post(limit, 8)
    await refuse(migration, moves, original, "settings-changed", does)
    await on_green.post(limit, 8)
    await steps.verify_copy(sides, run, moves)

    proof = run.stored(BASELINE)
    assert proof is not None
    old = {**proof[str(name)], "at": proof[str(name)]["at"] - 5 * 3600}
    run.artefacts.write_json(run.id, BASELINE, {str(name): old})
    await refuse(migration, moves, original, "proof-too-old", VERIFY_AGAIN)
    await steps.verify_copy(sides, run, moves)

    await switch(migration, moves, original)
    assert (await on_blue.namespace(name) or {})["migrated"]
    assert await on_green.get(limit) == 8
    assert (await on_green.stats(topic))["subscriptions"][LATE]["msgBacklog"] == len(MESSAGES)


@pytest.mark.long
async def test_a_run_undone_and_started_again_moves_topics_created_meanwhile(
    topic: TopicName, begin: Callable[[str, TopicName], Migration], on_blue: AdminClient, on_green: AdminClient
) -> None:
    first, name = begin("undone", topic), topic.namespace
    moves = await prepare(first)
    original = await copy(first, moves)
    created = TopicName(name, "created")
    await on_blue.create_topic(created)
    await refuse(first, moves, original, "topics-changed", "end this run and undo it (pulsar-fleet abort)")
    await abort_migration(first.sides, first.run, moves)
    first.run.ledger.finish_run(first.run.id, "undone")

    await migrate(begin("started again", topic))
    assert (await on_blue.namespace(name) or {})["migrated"]
    assert created in await on_green.topics(name)
    assert (await on_green.stats(topic))["subscriptions"][LATE]["msgBacklog"] == len(MESSAGES)


@pytest.mark.long
async def test_a_copy_that_a_client_wrote_to_is_verified_again_without_it(
    topic: TopicName, begin: Callable[[str, TopicName], Migration], green: ClusterConnection, on_green: AdminClient
) -> None:
    migration = begin("written to", topic)
    moves = await prepare(migration)
    original = await copy(migration, moves)
    for _ in range(2):
        # Without stopping it, to verify again is of no use.
        await asyncio.to_thread(publish, green, topic, MESSAGES[:1])
        await refuse(migration, moves, original, "green-written-to", "stop it; what it has written stays on green")
        await steps.verify_copy(migration.sides, migration.run, moves)
    await switch(migration, moves, original)
    assert (await on_green.stats(topic))["subscriptions"][LATE]["msgBacklog"] == len(MESSAGES) + 2


@pytest.mark.long
async def test_a_client_after_the_gates_that_cannot_follow_is_refused(
    topic: TopicName, begin: Callable[[str, TopicName], Migration], blue: ClusterConnection, on_blue: AdminClient
) -> None:
    migration = begin("late client", topic)
    moves = await prepare(migration)
    original = await copy(migration, moves)
    with pytest.MonkeyPatch.context() as old:
        old.setattr(frames, "CLIENT", "Pulsar-CPP-v3.4.2")
        client = RawStore(blue)
    with closing(client):
        await asyncio.to_thread(client.store, str(topic), b"", messages=0, times=0)
        does = '1 client Pulsar-CPP-v3.4.2: producer "raw-'
        await refuse(migration, moves, original, "client-cannot-follow", does)
        assert (await on_blue.stats(topic))["publishers"]
    await switch(migration, moves, original)
    assert (await on_blue.namespace(topic.namespace) or {})["migrated"]
