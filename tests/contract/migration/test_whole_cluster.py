"""`replicate_then_redirect_cluster`: every namespace of a cluster of Pulsar 3.0 moves with one flag."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.applications import Publisher, Subscriber
from tests.support.restarted_clients import RestartedClient, publish, restart
from tests.support.waits import monitor_until_drained, wait_replicated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.state_topic import read_runs
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.abort import abort_migration
from pulsar_fleet.migration.artefacts import MOVES
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.namespace_cutover import CutOverResult
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.dead_runs import find_overrides
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.scope import resolve
from pulsar_fleet.report.migration import store_migration_report
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.fleet]

ARCHIVE = "archive"
SHARED = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)
SALES, STOCK, EMPTY = (NamespaceName("acme", name) for name in ("sales", "stock", "empty"))
LATER = NamespaceName("acme", "later")
RATE = {"publishThrottlingRateInMsg": 5000, "publishThrottlingRateInByte": -1}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 7200,
    "deleteWhileInactive": True,
}


@dataclass
class Estate:
    """Three namespaces, two of them with live applications, on a blue of Pulsar 3.0 that the test may flag."""

    sides: Sides
    run: Run
    moves: Moves = field(init=False)

    def __post_init__(self) -> None:
        events, audit, items = TopicName(SALES, "events"), TopicName(SALES, "audit"), TopicName(STOCK, "items")
        self.publishers = [
            Publisher(events, ["a", "b", "c"], per_second=60),
            Publisher(audit, ["d"], per_second=20),
            Publisher(items, ["e", "f"], per_second=60),
        ]
        self.subscribers = [
            Subscriber(events, "billing", pulsar.ConsumerType.Failover),
            Subscriber(events, "fraud", pulsar.ConsumerType.KeyShared),
            Subscriber(audit, "ledger"),
            Subscriber(items, "search", pulsar.ConsumerType.Shared),
        ]

    @property
    def original(self) -> OriginalSettings:
        original = find_original_settings(self.run)
        assert original is not None
        return original

    async def check(self, names: list[NamespaceName]) -> None:
        reference, _ = await steps.check_gates(self.sides, self.run, names, Strategy.WHOLE_CLUSTER)
        self.moves = Moves.from_json(self.run.artefacts.read_json(reference))

    def load(self) -> None:
        """Take what another process has checked."""
        reference = self.run.artefacts.find(self.run.id, MOVES)
        assert reference is not None
        self.moves = Moves.from_json(self.run.artefacts.read_json(reference))

    async def copy(self) -> None:
        async with self.sides.open() as (blue, _green):
            await self.check(list(await resolve(blue, ["all"])))
        await steps.prepare_green(self.sides, self.run, self.moves)
        await steps.recheck_gates(self.sides, self.run, self.moves, expected=_EXPECTED)
        await steps.freeze_blue(self.sides, self.run, self.moves)
        await steps.start_replication(self.sides, self.run, self.moves)
        await wait_replicated(self.sides, self.run, self.moves, seconds=60, poll_seconds=0.5, progress=str)
        await steps.verify_copy(self.sides, self.run, self.moves)

    async def cut_over(self) -> dict[str, CutOverResult]:
        reference = await steps.cut_over(self.sides, self.run, self.moves, self.original, proof_max_age_minutes=60)
        document = self.run.artefacts.read_json(reference)
        return {name: CutOverResult.from_json(result) for name, result in document.items()}

    async def finish(self) -> None:
        await steps.verify_subscriptions(self.sides, self.run, self.moves)
        await monitor_until_drained(self.sides, self.run, self.moves, seconds=60, poll_seconds=1)
        await steps.verify_messages(self.sides, self.run, self.moves)
        await steps.clean_up_blue(self.sides, self.run, self.moves, self.original)
        await steps.restore_blue(self.sides, self.run, self.original, delete_topics=False)

    def start(self) -> None:
        for application in (*self.subscribers, *self.publishers):
            application.start(self.sides.blue)

    async def stop(self) -> None:
        for application in (*self.publishers, *self.subscribers):
            await asyncio.to_thread(application.stop)

    async def settle(self) -> None:
        """Stop publishing, and wait until every subscription has everything, in the order of each key."""
        for publisher in self.publishers:
            await asyncio.to_thread(publisher.stop)
        for subscriber in self.subscribers:
            sent = [
                message
                for publisher in self.publishers
                if publisher.topic == subscriber.topic
                for message in publisher.sent
            ]
            async with asyncio.timeout(15):
                while subscriber.received.lost(sent):
                    await asyncio.sleep(0.2)
            assert subscriber.received.out_of_order() == []
        assert [error for application in (*self.publishers, *self.subscribers) for error in application.errors] == []

    def require_stated_duplicates(self, results: Mapping[str, CutOverResult]) -> None:
        stated = {topic: count for result in results.values() for topic, count in result.duplicates.items()}
        for subscriber in self.subscribers:
            of_topic = (count for topic, count in stated.items() if TopicName.parse(topic).parent == subscriber.topic)
            assert subscriber.received.twice() == sum(of_topic)


def estate_of(blue: ClusterConnection, green: ClusterConnection, folder: Path) -> Estate:
    """The run; its records are the same for every process that calls this."""
    ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
    return Estate(Sides(blue, green, 5.0), Run("whole", ledger, Artefacts.open(str(folder / "files"))))


def cut_over_in_a_process(blue: ClusterConnection, green: ClusterConnection, folder: Path) -> None:
    estate = estate_of(blue, green, folder)
    estate.load()
    asyncio.run(estate.cut_over())


async def is_throttled(blue: AdminClient) -> bool:
    return bool(await blue.get(f"/namespaces/{STOCK.path}/publishRate"))


_EXPECTED = Expectations()
MakeClusters = Callable[[str], Awaitable[Estate]]


@pytest.fixture
async def make_estate(tmp_path: Path) -> AsyncIterator[MakeClusters]:
    """Starts two clusters, blue of the given version, with the namespaces on blue."""
    estates: list[Estate] = []
    sandboxes: list[Sandbox] = []

    async def make(version: str) -> Estate:
        versions = {"blue": version, "green": "4.2.4"}
        sandbox = await asyncio.to_thread(Sandbox.start, tmp_path / "sandbox", version=versions)
        sandboxes.append(sandbox)
        blue, green = (
            ClusterConnection(name=name, admin_url=sandbox[name].admin_url, service_url=sandbox[name].service_url)
            for name in ("blue", "green")
        )
        estates.append(estate := estate_of(blue, green, tmp_path))
        async with AdminClient(blue) as admin:
            await admin.put("/tenants/acme", {"adminRoles": [], "allowedClusters": ["blue"]})
            for name in (SALES, STOCK, EMPTY):
                await admin.put_namespace(name, {"replication_clusters": ["blue"]})
            await admin.create_partitioned_topic(TopicName(SALES, "events"), 3)
            for topic in (TopicName(SALES, "audit"), TopicName(STOCK, "items")):
                await admin.create_topic(topic)
                await admin.create_subscription(topic, ARCHIVE)
            await admin.post(f"/{TopicName(SALES, 'audit').path}/publishRate", RATE)
            await admin.post(f"/{TopicName(STOCK, 'items').path}/inactiveTopicPolicies", INACTIVE)
        return estate

    yield make
    for estate in estates:
        await estate.stop()
    for sandbox in sandboxes:
        await asyncio.to_thread(sandbox.close)


async def test_every_namespace_is_redirected_at_once_and_nothing_is_lost(make_estate: MakeClusters) -> None:
    estate = await make_estate("3.0.7")
    estate.start()
    await asyncio.sleep(2)
    await estate.copy()
    assert {move.strategy for move in estate.moves.moves} == {Strategy.WHOLE_CLUSTER}
    results = await estate.cut_over()
    assert results.keys() == {str(name) for name in (SALES, STOCK, EMPTY)}
    # A second call only confirms it.
    assert await estate.cut_over() == results
    await estate.finish()
    await asyncio.sleep(1)
    await estate.settle()

    estate.require_stated_duplicates(results)
    async with estate.sides.open() as (blue, green):
        assert await redirects_every_topic(blue)
        for publisher in estate.publishers[1:]:
            statistics = await green.stats(publisher.topic, precise=True)
            assert statistics["subscriptions"][ARCHIVE]["msgBacklog"] == len(publisher.sent)
        # What is set on a topic of blue would arrive here, and so would what is published to blue's record of runs.
        assert await green.get(f"/{TopicName(SALES, 'audit').path}/publishRate") == RATE
        assert await green.get(f"/{TopicName(STOCK, 'items').path}/inactiveTopicPolicies") == INACTIVE
        assert (await read_runs(green)).leases == {}
        assert (await read_runs(green)).brokers is None
        # Nothing is restored later: an unloaded topic would do harm.
        assert not (await find_overrides(blue)).needs_restoration
    await require_continued(estate)
    phases = [entry.phase for entry in estate.run.ledger.phases(estate.run.id) if entry.namespace == str(STOCK)]
    assert phases[-3:] == [Phase.DRAINED, Phase.VERIFIED, Phase.FINISHED]
    report = store_migration_report(estate.run, {}, None).markdown()
    assert str(STOCK) in report


async def require_continued(estate: Estate) -> None:
    """Applications that restart with blue's address get nothing again.

    Those with one active consumer wait there for messages, since 3.0 redirects none that waits; connected to green they
    get what was published since, as the others do through blue.
    """
    await estate.stop()
    blue, green = estate.sides.blue, estate.sides.green
    clients = [
        RestartedClient(subscriber.topic, subscriber.kind, position, subscription=subscriber.subscription)
        for subscriber, position in zip(
            estate.subscribers,
            (pulsar.InitialPosition.Earliest, pulsar.InitialPosition.Latest, *[pulsar.InitialPosition.Earliest] * 2),
            strict=True,
        )
    ]
    later = [f"later-{number}" for number in range(5)]
    await asyncio.to_thread(publish, green, {client.topic for client in clients}, later)
    shared = {client: Counter(later) for client in clients if client.kind in SHARED}
    waiting = {client: Counter(later) for client in clients if client.kind not in SHARED}
    assert await restart(blue, shared) == {}
    for _ in range(2):
        assert await restart(blue, {client: Counter() for client in clients}) == {}
    assert await restart(green, waiting) == {}


@pytest.mark.parametrize("killed_when", [is_throttled, redirects_every_topic])
async def test_a_cut_over_that_is_killed_is_finished_by_the_next_try(
    killed_when: Callable[[AdminClient], Awaitable[bool]], make_estate: MakeClusters, tmp_path: Path
) -> None:
    estate = await make_estate("3.0.7")
    estate.start()
    await asyncio.sleep(2)
    await estate.copy()
    process = get_context("forkserver").Process(
        target=cut_over_in_a_process, args=(estate.sides.blue, estate.sides.green, tmp_path)
    )
    async with AdminClient(estate.sides.blue) as blue:
        process.start()
        while not await killed_when(blue):
            assert process.exitcode is None
            await asyncio.sleep(0.01)
        process.kill()
        await asyncio.to_thread(process.join)
        assert process.exitcode == -signal.SIGKILL
        flagged = await redirects_every_topic(blue)
    assert flagged is (killed_when is redirects_every_topic)
    results = await estate.cut_over()
    await estate.finish()
    await asyncio.sleep(1)
    await estate.settle()
    estate.require_stated_duplicates(results)


async def test_consumers_left_waiting_by_a_cut_over_are_reconnected_by_the_drain(
    make_estate: MakeClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    estate = await make_estate("3.0.7")
    estate.start()
    await asyncio.sleep(2)
    await estate.copy()
    # As where consumers read on for longer than the cut-over waits.
    monkeypatch.setattr("pulsar_fleet.migration.cutover.redirect._RECONNECT_SECONDS", 0.0)
    results = await estate.cut_over()
    await estate.finish()
    await estate.settle()
    estate.require_stated_duplicates(results)
    remedies = [change.change_id for change in estate.run.ledger.changes(estate.run.id)]
    assert any(remedy.startswith("remedy:consumers-wait:") for remedy in remedies), remedies


async def test_a_namespace_left_out_blocks_and_a_later_one_stops_before_the_flag(
    make_estate: MakeClusters,
) -> None:
    estate = await make_estate("3.0.7")
    with pytest.raises(PreconditionFailed, match=r"namespace-left-out.*acme/stock"):
        await estate.check([SALES, EMPTY])
    estate.start()
    await asyncio.sleep(1)
    await estate.copy()
    async with estate.sides.open() as (blue, green):
        await blue.put_namespace(LATER, {"replication_clusters": ["blue"]})
        with pytest.raises(PreconditionFailed, match=r"1 namespace that this run does not move: acme/later"):
            await estate.cut_over()
        assert not await redirects_every_topic(blue)
        await abort_migration(estate.sides, estate.run, estate.moves)
        assert await green.namespace(SALES) is None
        rates: Any = await blue.get(f"/namespaces/{SALES.path}/publishRate")
        assert not rates
    await estate.settle()
    assert {subscriber.subscription: subscriber.received.twice() for subscriber in estate.subscribers} == {
        subscriber.subscription: 0 for subscriber in estate.subscribers
    }


async def test_brokers_that_redirect_single_namespaces_refuse_it(make_estate: MakeClusters) -> None:
    estate = await make_estate("4.0.7")
    with pytest.raises(PreconditionFailed, match="cluster-flag-not-needed"):
        await estate.check([SALES, STOCK, EMPTY])
