"""A migrated namespace comes back from green to blue, with live traffic on it, and nothing is lost."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.cursors import Entry, Side
from tests.support.migration import LATE, Migration, make, migration, overridden, publish
from tests.support.moved_namespace import MovedNamespace
from tests.support.waits import monitor_until_drained

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.abort import abort_migration
from pulsar_fleet.migration.artefacts import DRAIN_STATE
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.failback.steps import check_failback, close_reopened, reopen
from pulsar_fleet.migration.model import Move, Moves, PartitionClients, Phase, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.lease import release
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.prepare.target import prepare
from pulsar_fleet.migration.proof.steps import verify_copy, verify_messages, verify_subscriptions
from pulsar_fleet.migration.steps import (
    check_gates,
    clean_up_blue,
    cut_over,
    freeze_blue,
    recheck_gates,
    replication_progress,
    restore_blue,
    start_replication,
)
from pulsar_sandbox.workload import Traffic, drain_subscription
from pulsar_sandbox.workload.live import NumberedMessage

pytestmark = pytest.mark.cluster

NewNamespace = Callable[[], NamespaceName]
ARCHIVE = "archive"
KEPT = 60
SELECTOR = {"selector": "a = 1"}
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@dataclass
class Way:
    """A run over two clusters, forth or back."""

    sides: Sides
    run: Run
    moves: Moves

    def document(self, name: str) -> Any:
        reference = self.run.artefacts.find(self.run.id, name)
        assert reference is not None
        return self.run.artefacts.read_json(reference)

    @property
    def before(self) -> OriginalSettings:
        return OriginalSettings.from_json(self.document("original-settings.json"))

    async def travel(self) -> None:
        """From the freeze to the teardown."""
        sides, run, moves = self.sides, self.run, self.moves
        await freeze_blue(sides, run, moves)
        await start_replication(sides, run, moves)
        while not (await replication_progress(sides, run, moves))[0]:
            await asyncio.sleep(0.2)
        await verify_copy(sides, run, moves)
        await cut_over(sides, run, moves, self.before, quiesce_seconds=0.5, proof_max_age_minutes=5)
        await verify_subscriptions(sides, run, moves)

    async def arrive(self) -> None:
        """All clients are on green; blue is cleaned up and restored."""
        sides, run, moves = self.sides, self.run, self.moves
        await monitor_until_drained(sides, run, moves, seconds=90, poll_seconds=1)
        await verify_messages(sides, run, moves)
        await clean_up_blue(sides, run, moves, self.before)
        await restore_blue(sides, run, self.before, delete_topics=True)


async def forth(blue: ClusterConnection, green: ClusterConnection, name: NamespaceName, folder: Path) -> Way:
    """A namespace with live topics and one with an archive, ready to move to green."""
    await make(blue, green, name)
    archive = TopicName(NamespaceName(name.tenant, "kept"), ARCHIVE)
    for connection in (blue, green):
        async with AdminClient(connection) as admin:
            own = await admin.cluster_name()
            await admin.put_namespace(archive.namespace, {"replication_clusters": [own], "retention_policies": FOREVER})
            await admin.create_topic(archive)
    live: Migration = migration(blue, green, name, folder)
    kept = Move(archive.namespace, Strategy.REDIRECT, "", {archive: 0}, {archive: PartitionClients(0, {}, {})})
    return Way(live.sides, live.run, Moves("blue", "green", (*live.moves.moves, kept)))


async def leave_an_archive(connection: ClusterConnection, topic: TopicName) -> list[Entry]:
    """Messages with a subscription that has individually acknowledged some of them, published on this cluster."""
    async with AdminClient(connection) as admin:
        side = Side(connection, admin)
        side.write(topic, [f"kept-{number}" for number in range(KEPT)], batch=1)
        entries = side.read(topic, by_index=False)
        await admin.create_subscription(topic, "audit", entries[10].position)
        await admin.put(f"{topic.subscription_path('audit')}/properties", SELECTOR)
        consumer = side.client.subscribe(str(topic), "audit", receiver_queue_size=1)
        for number in (20, 21, 40):
            lies = entries[number].position
            consumer.acknowledge(pulsar.MessageId(-1, lies.ledger, lies.entry, -1))
        side.client.close()
        return entries


async def back(way: Way) -> Way:
    """The failback of a migration, as far as its checks and blue's recreated topics."""
    names = [move.namespace for move in way.moves.moves]
    run = replace(way.run, id="returned")
    run.ledger.start_run(run.id, "fail_back_namespaces", {})
    with pytest.raises(PreconditionFailed, match="removal-not-allowed"):
        await check_failback(way.sides, run, names, None, allow_removal=False)
    await check_failback(way.sides, run, names, None, allow_removal=True)
    await reopen(way.sides, run, names)
    assert all(not answer["removed"] for answer in (await reopen(way.sides, run, names)).values())
    swapped = Sides(way.sides.green, way.sides.blue, way.sides.retry_seconds)
    reference, _ = await check_gates(swapped, run, names, None, expected=Expectations(is_failback=True))
    moves = Moves.from_json(run.artefacts.read_json(reference))
    await prepare(swapped, run, moves)
    return Way(swapped, run, moves)


@pytest.mark.long
async def test_a_migrated_namespace_comes_back_with_nothing_lost(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    tmp_path: Path,
) -> None:
    name = new_namespace()
    migrated = await forth(blue, green, name, tmp_path)
    archive = TopicName(NamespaceName(name.tenant, "kept"), ARCHIVE)
    with applications(blue, name, tmp_path / "traffic") as traffic:
        await migrated.travel()
        names, early = [move.namespace for move in migrated.moves.moves], replace(migrated.run, id="early")
        with pytest.raises(PreconditionFailed, match="being changed by the run 'moved'"):
            await check_failback(migrated.sides, early, names, None, allow_removal=True)
        await release(migrated.sides, migrated.run)
        with pytest.raises(PreconditionFailed, match="still-draining"):
            await check_failback(migrated.sides, early, names, None, allow_removal=True)
        await asyncio.to_thread(drain_subscription, blue, TopicName(name, LATE), LATE)
        await migrated.arrive()
        entries = await leave_an_archive(green, archive)
        before = await overridden(on_green, name)

        home = await back(migrated)
        assert [move.strategy for move in home.moves.moves] == [Strategy.REDIRECT, Strategy.REPLICATE]
        await home.travel()
        tally = await asyncio.to_thread(traffic.stop)
    # Producers that were sent there and back over one connection have to be restarted, as the page says.
    with applications(blue, name, tmp_path / "restarted") as restarted:
        await home.arrive()
        assert await overridden(on_green, name) == before
        again = await asyncio.to_thread(restarted.stop)
    assert (tally.unreceived, again.lost) == (0, 0), f"{tally.text()}\n{again.text()}"
    assert incidents(home) <= {"client-missing", "no-consumers"}
    stats = await on_blue.stats(archive)
    assert stats["subscriptions"]["audit"]["msgBacklog"] == KEPT - 10 - 3
    assert stats["subscriptions"]["audit"]["subscriptionProperties"] == SELECTOR
    got = Counter(await asyncio.to_thread(payloads, blue, archive, "audit"))
    assert got == Counter(message for entry in entries[10:] for message in entry.messages) - Counter(
        ["kept-20", "kept-21", "kept-40"]
    )
    policies = [(await admin.namespace(name) or {}).get("migrated") for admin in (on_blue, on_green)]
    assert policies == [False, True]
    form = f'{{"blue": "green", "green": "blue", "namespaces": ["{name}"]}}'
    with pytest.raises(PreconditionFailed, match=re.escape(form)):
        await check_gates(migrated.sides, replace(migrated.run, id="again"), [name], None)
    # Failback of another namespace is refused while this flag is set.
    await on_green.post(f"/namespaces/{name.path}/migration", False)
    phases = [row.phase for row in home.run.ledger.phases(home.run.id) if row.namespace == str(name)]
    assert (phases[0], phases[-1]) == (Phase.REOPENED, Phase.FINISHED)


async def test_topics_are_reopened_with_the_partitions_that_they_have_on_green(moved: MovedNamespace) -> None:
    grown = moved.topic("grown")
    await moved.blue.create_partitioned_topic(grown, 2)
    moves = await moved.until_cut_over(Strategy.REDIRECT)
    await moved.cut_over(moves)
    await moved.finish(moves)
    await moved.green.post(f"/{grown.path}/partitions", 3)
    await reopen(moved.sides, replace(moved.run, id="returned"), [moved.namespace])
    assert (await moved.blue.partition_metadata(grown)).partitions == 3


async def test_what_was_written_before_a_failback_closed_again_is_kept(moved: MovedNamespace) -> None:
    moves = await moved.until_cut_over(Strategy.REDIRECT)
    await moved.cut_over(moves)
    await moved.finish(moves)
    await moved.restore()
    returned = moved.returned()
    await returned.reopen()
    await moved.blue.create_subscription(moved.topic("live"), "reader")
    await moved.publish("live", 3)
    await close_reopened(moved.sides, returned.run, [moved.namespace])
    with pytest.raises(PreconditionFailed, match="still-draining"):
        await returned.reopen()
    stats = await moved.blue.stats(moved.topic("live"))
    assert stats["subscriptions"]["reader"]["msgBacklog"] == 3


@pytest.mark.long
async def test_a_stop_before_the_switch_takes_everything_back(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    tmp_path: Path,
) -> None:
    archive = TopicName(new_namespace(), ARCHIVE)
    await on_blue.put(f"/tenants/{archive.namespace.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    kept = {"replication_clusters": ["blue"], "retention_policies": FOREVER}
    await on_blue.put_namespace(archive.namespace, kept)
    await on_blue.create_topic(archive)
    await leave_an_archive(blue, archive)
    before = await on_blue.namespace(archive.namespace), await on_blue.dynamic_overrides()
    run = Run("stopped", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "kept")))
    sides = Sides(blue, green, 5.0)
    reference, _ = await check_gates(sides, run, [archive.namespace], None)
    way = Way(sides, run, Moves.from_json(run.artefacts.read_json(reference)))
    await prepare(sides, run, way.moves)
    await freeze_blue(sides, run, way.moves)
    await recheck_gates(sides, run, way.moves, expected=Expectations())
    await start_replication(sides, run, way.moves)
    again = await prepare(sides, run, way.moves)
    assert again["changes"] == 0, way.document("plan-green.json")["changes"]
    while not (await replication_progress(sides, run, way.moves))[0]:
        await asyncio.sleep(0.2)
    with pytest.raises(PreconditionFailed, match="no-proof"):
        await cut_over(sides, run, way.moves, way.before, proof_max_age_minutes=5)
    await restore_blue(sides, run, way.before, delete_topics=True)  # as behind a try that failed
    await verify_copy(sides, run, way.moves)
    publish(green, archive, [NumberedMessage("stranger", "key", number, 1) for number in range(KEPT)])
    await on_blue.post(f"/namespaces/{archive.namespace.path}/messageTTL", 3600)
    with pytest.raises(
        PreconditionFailed, match=r"settings-changed +\S+ +message_ttl_in_seconds on blue[\s\S]*green-written-to"
    ):
        await cut_over(sides, run, way.moves, way.before, proof_max_age_minutes=5)
    await on_blue.delete(f"/namespaces/{archive.namespace.path}/messageTTL")

    undone = await abort_migration(sides, run, way.moves)
    assert (undone.replication, undone.kept) == ((str(archive.namespace),), ())
    assert await on_green.tenant(archive.namespace.tenant) is None
    after = await on_blue.namespace(archive.namespace), await on_blue.dynamic_overrides()
    assert after == before
    assert (await abort_migration(sides, run, way.moves)).removed == ()


def applications(blue: ClusterConnection, name: NamespaceName, folder: Path) -> Traffic:
    """They enter through blue."""
    return Traffic.start(blue, namespace=name, folder=folder, restart_seconds=8)


def incidents(way: Way) -> set[str]:
    """Kinds of the incidents that needed more than waiting."""
    namespaces = way.document(DRAIN_STATE)["namespaces"].values()
    records = [incident for namespace in namespaces for incident in namespace["incidents"].values()]
    return {incident["kind"] for incident in records if incident["remedy"] != "wait"}


def payloads(connection: ClusterConnection, topic: TopicName, subscription: str) -> list[str]:
    client = pulsar.Client(connection.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    messages: list[str] = []
    try:
        consumer = client.subscribe(str(topic), subscription)
        while True:
            message = consumer.receive(1000)
            messages.append(message.data().decode())
            consumer.acknowledge(message)
    except pulsar.Timeout:
        return messages
    finally:
        client.close()
