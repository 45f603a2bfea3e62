"""`replicate_then_repoint`: the owners of applications connect them to green; nothing is lost, nothing is out of order.

Blue needs no flag for it: also a cluster of Pulsar 3.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pulsar
import pytest
from tests.support.applications import Application, Numbered, Publisher, Subscriber, wait_copied
from tests.support.kinds import StartClusters
from tests.support.moved_namespace import MovedNamespace
from tests.support.replicated_applications import make_topics, replicate_both_ways
from tests.support.restarted_clients import publish
from tests.support.waits import monitor_until_drained, wait_replicated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import stored_redirect
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.versions import Redirect, release_of
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.abort import abort_migration
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.namespace_cutover import CutOverResult
from pulsar_fleet.migration.cutover.termination import unterminated_partitions
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.repoint import terminate
from pulsar_fleet.migration.repoint.steps import repoint_progress
from pulsar_fleet.report.migration import store_migration_report

pytestmark = pytest.mark.cluster

POLL_SECONDS = 0.5
ARCHIVE = "archive"
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
PER_SECOND = 80.0


@dataclass
class Estate:
    """A namespace with live applications on blue, and the run that moves it."""

    sides: Sides
    run: Run
    namespace: NamespaceName
    moves: Moves = field(init=False)
    publishers: list[Publisher] = field(default_factory=list)
    subscribers: list[Subscriber] = field(default_factory=list)

    def __post_init__(self) -> None:
        events, audit = self.topic("events"), self.topic("audit")
        self.publishers = [
            Publisher(events, ["a", "b", "c"], per_second=PER_SECOND),
            Publisher(events, ["d", "e", "f"], per_second=PER_SECOND),
            Publisher(audit, ["g"], per_second=PER_SECOND / 4),
        ]
        self.subscribers = [
            Subscriber(events, "billing"),
            Subscriber(events, "fraud", pulsar.ConsumerType.KeyShared),
            Subscriber(audit, "ledger", pulsar.ConsumerType.Failover),
        ]

    def topic(self, name: str) -> TopicName:
        return TopicName(self.namespace, name)

    @property
    def original(self) -> OriginalSettings:
        original = find_original_settings(self.run)
        assert original is not None
        return original

    async def copy(self) -> None:
        """Everything before the applications move."""
        expected = Expectations()
        async with self.sides.open() as (blue, _green):
            release = release_of(await blue.version())
        # A cluster that redirects no single namespace has no other strategy.
        strategy = Strategy.REPOINT if release and Redirect.NAMESPACE in release.redirects else None
        reference, _ = await steps.check_gates(self.sides, self.run, [self.namespace], strategy, expected=expected)
        self.moves = Moves.from_json(self.run.artefacts.read_json(reference))
        await steps.prepare_green(self.sides, self.run, self.moves)
        await steps.recheck_gates(self.sides, self.run, self.moves, expected=expected)
        await steps.freeze_blue(self.sides, self.run, self.moves)
        await steps.start_replication(self.sides, self.run, self.moves)
        await wait_replicated(self.sides, self.run, self.moves, seconds=60, poll_seconds=POLL_SECONDS, progress=str)
        await steps.verify_copy(self.sides, self.run, self.moves)

    async def poll(self) -> tuple[bool, str]:
        return await repoint_progress(self.sides, self.run, self.moves)

    async def connect(self, application: Application) -> None:
        """Connect an application to green, as its owner does; a producer, when green has everything of it."""
        await asyncio.to_thread(application.stop)
        partitions = [topic for topic in self.moves.moves[0].partitions if topic.parent == application.topic]
        if isinstance(application, Publisher):
            async with self.sides.open() as (blue, _green):
                await wait_copied(blue, partitions, self.moves.green)
        application.start(self.sides.green)

    async def left(self) -> str:
        """Poll until every application has left blue."""
        async with asyncio.timeout(30):
            while not (polled := await self.poll())[0]:
                await asyncio.sleep(POLL_SECONDS)
        return polled[1]

    async def settle(self) -> None:
        """Stop publishing, and wait until every subscription has everything, in the order of each key."""
        await asyncio.sleep(1)
        await self.received_by(self.subscribers)

    async def received_by(self, subscribers: Sequence[Subscriber]) -> None:
        """Stop publishing, and wait until these have everything, in the order of each key."""
        for publisher in self.publishers:
            await asyncio.to_thread(publisher.stop)
        for subscriber in subscribers:
            sent = self.sent(subscriber.topic)
            async with asyncio.timeout(15):
                while subscriber.received.lost(sent):
                    await asyncio.sleep(0.2)
            assert subscriber.received.out_of_order() == []
        assert [error for application in (*self.publishers, *subscribers) for error in application.errors] == []

    async def terminate(self) -> CutOverResult:
        reference = await steps.cut_over(self.sides, self.run, self.moves, self.original, proof_max_age_minutes=60)
        return CutOverResult.from_json(self.run.artefacts.read_json(reference)[str(self.namespace)])

    async def finish(self) -> None:
        await steps.verify_subscriptions(self.sides, self.run, self.moves)
        await monitor_until_drained(self.sides, self.run, self.moves, seconds=30, poll_seconds=1)
        await steps.verify_messages(self.sides, self.run, self.moves)
        await steps.clean_up_blue(self.sides, self.run, self.moves, self.original)
        await steps.restore_blue(self.sides, self.run, self.original, delete_topics=False)

    def sent(self, topic: TopicName) -> list[Numbered]:
        return [message for publisher in self.publishers if publisher.topic == topic for message in publisher.sent]

    def twice(self, result: CutOverResult) -> dict[str, int]:
        """What the run states, by subscription."""
        stated: dict[str, int] = {}
        for cursor in result.cursors:
            stated[cursor.subscription] = stated.get(cursor.subscription, 0) + cursor.redelivered
        return stated


MakeEstate = Callable[[ClusterConnection], Awaitable[Estate]]


@pytest.fixture
async def make_estate(
    blue: ClusterConnection, on_blue: AdminClient, new_namespace: Callable[[], NamespaceName], tmp_path: Path
) -> AsyncIterator[MakeEstate]:
    """Makes an estate that moves to a cluster."""
    ledger, files = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "files"))
    estates: list[Estate] = []

    async def make(green: ClusterConnection) -> Estate:
        run = Run(f"to {green.name}", ledger, files)
        estate = Estate(Sides(blue, green, 5.0), run, new_namespace())
        estates.append(estate)
        await on_blue.put(f"/tenants/{estate.namespace.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
        await on_blue.put_namespace(estate.namespace, {"replication_clusters": ["blue"]})
        await on_blue.post(f"/namespaces/{estate.namespace.path}/retention", FOREVER)
        await on_blue.create_partitioned_topic(estate.topic("events"), 3)
        await on_blue.create_topic(estate.topic("audit"))
        for topic in ("events", "audit"):
            await on_blue.create_subscription(estate.topic(topic), ARCHIVE)
        for application in (*estate.subscribers, *estate.publishers):
            application.start(blue)
        return estate

    yield make
    for estate in estates:
        for application in (*estate.publishers, *estate.subscribers):
            await asyncio.to_thread(application.stop)


@pytest.fixture
async def estate(make_estate: MakeEstate, green: ClusterConnection) -> Estate:
    return await make_estate(green)


@pytest.mark.timeout(240)
async def test_applications_connect_to_green_in_turn_and_blue_refuses_producers(
    estate: Estate, blue: ClusterConnection, green: ClusterConnection, on_blue: AdminClient, on_green: AdminClient
) -> None:
    await asyncio.sleep(2)
    await estate.copy()
    assert [move.strategy for move in estate.moves.moves] == [Strategy.REPOINT]
    done, line = await estate.poll()
    assert not done
    assert line.startswith(f"0 of 1 namespace left blue · {estate.namespace}: 14 of 14 clients on blue")

    await asyncio.sleep(1)  # what is acknowledged on blue meanwhile is delivered twice
    for subscriber in estate.subscribers:
        await asyncio.to_thread(subscriber.restart, green)
        await asyncio.sleep(POLL_SECONDS)
        assert not (await estate.poll())[0]
    with pytest.raises(PreconditionFailed, match=r"7 clients of .* connected to .* again"):
        await estate.terminate()
    for publisher in estate.publishers:
        await estate.connect(publisher)
    assert await estate.left() == "1 of 1 namespace left blue"

    result = await estate.terminate()
    await estate.finish()
    await estate.settle()
    stated = estate.twice(result)
    assert stated["billing"] > 0
    assert {subscriber.subscription: subscriber.received.twice() for subscriber in estate.subscribers} == {
        subscriber.subscription: stated[subscriber.subscription] for subscriber in estate.subscribers
    }
    # Nobody read it: it continues on green with everything.
    archive = (await on_green.stats(estate.topic("audit"), precise=True))["subscriptions"][ARCHIVE]
    assert archive["msgBacklog"] == len(estate.sent(estate.topic("audit")))
    # It stays on blue, at its end: an application that restarts there would create it again, from the beginning.
    left = (await on_blue.stats(estate.topic("audit"), precise=True))["subscriptions"]
    assert [left[name]["msgBacklog"] for name in (ARCHIVE, "ledger")] == [0, 0]

    assert await unterminated_partitions(on_blue, estate.moves.moves[0]) == ()
    late = open_client(blue, 5)
    with pytest.raises(pulsar.TopicTerminated):
        late.create_producer(str(estate.topic("audit")))
    late.close()
    phases = [entry.phase for entry in estate.run.ledger.phases(estate.run.id)]
    assert phases[-3:] == [Phase.DRAINED, Phase.VERIFIED, Phase.FINISHED]
    report = store_migration_report(estate.run, {}, None).markdown()
    assert "every application left blue, which refuses producers" in report
    assert "refuses producers of these topics, and redirects no client" in report


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.timeout(240)
async def test_producers_may_connect_to_green_first_and_no_message_is_skipped(
    estate: Estate, blue: ClusterConnection, green: ClusterConnection, on_green: AdminClient
) -> None:
    reading = Subscriber(estate.topic("events"), ARCHIVE)
    reading.start(blue)
    await asyncio.sleep(2)
    reading.stop()
    await estate.copy()
    for application in (*estate.publishers, *estate.subscribers):
        await estate.poll()
        await estate.connect(application)
        await asyncio.sleep(1)
    assert await estate.left() == "1 of 1 namespace left blue"
    result = await estate.terminate()
    await estate.finish()
    await estate.settle()
    stated = estate.twice(result)
    assert {subscriber.subscription: subscriber.received.twice() for subscriber in estate.subscribers} == {
        subscriber.subscription: stated[subscriber.subscription] for subscriber in estate.subscribers
    }
    # It stopped before the copy, and its application starts again on green.
    reading.start(green)
    async with asyncio.timeout(15):
        while reading.received.lost(estate.sent(estate.topic("events"))):
            await asyncio.sleep(0.2)
    reading.stop()
    assert reading.received.out_of_order() == []
    assert reading.received.twice() == stated[ARCHIVE]


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.timeout(240)
async def test_messages_repeated_by_a_replicator_are_counted_and_the_run_goes_on(
    estate: Estate, on_blue: AdminClient, on_green: AdminClient
) -> None:
    """When green closes a topic before it confirmed what it stored, blue's replicator sends that again."""
    await asyncio.sleep(1)
    await estate.copy()
    partitions = estate.topic("events").partitions(3)
    for publisher in estate.publishers:
        publisher.pause_seconds = 0.001
    async with asyncio.timeout(60):
        while not await surplus(on_blue, on_green, partitions):
            await on_green.put(f"/namespaces/{estate.namespace.path}/unload")
    for publisher in estate.publishers:
        publisher.pause_seconds = 1 / PER_SECOND
    await estate.poll()
    for application in (*estate.publishers, *estate.subscribers):
        await estate.connect(application)
    await estate.left()
    await estate.terminate()
    twice = await steps.verify_subscriptions(estate.sides, estate.run, estate.moves)
    assert twice["repeated"] > 0  # of those that no application uses on green
    await monitor_until_drained(estate.sides, estate.run, estate.moves, seconds=30, poll_seconds=1)
    verified = await steps.verify_messages(estate.sides, estate.run, estate.moves)
    assert (verified["verdict"], verified["repeated"]) == ("repeated", twice["repeated"])
    (verdict,) = [row for row in estate.run.ledger.verdicts(estate.run.id) if row.scope == str(estate.namespace)]
    assert f"green has every message, and {verified['repeated']:,} message" in verdict.summary
    await steps.clean_up_blue(estate.sides, estate.run, estate.moves, estate.original)
    for application in (*estate.publishers, *estate.subscribers):
        await asyncio.to_thread(application.stop)
    readers = [Subscriber(estate.topic(name), ARCHIVE) for name in ("events", "audit")]
    for reader in readers:
        reader.start(estate.sides.green)
    async with asyncio.timeout(30):
        while any(reader.received.lost(estate.sent(reader.topic)) for reader in readers):
            await asyncio.sleep(0.2)
    await asyncio.sleep(1)
    for reader in readers:
        await asyncio.to_thread(reader.stop)
    assert sum(reader.received.twice() for reader in readers) == verified["repeated"]


async def surplus(blue: AdminClient, green: AdminClient, partitions: Sequence[TopicName]) -> int:
    """How many entries more green has than blue, which is read after it."""
    await asyncio.sleep(0.5)
    on_green = [len(Ledgers.of(await green.internal_stats(partition))) for partition in partitions]
    on_blue = [len(Ledgers.of(await blue.internal_stats(partition))) for partition in partitions]
    return sum(max(0, green_count - blue_count) for green_count, blue_count in zip(on_green, on_blue, strict=True))


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.timeout(300)
async def test_namespaces_of_one_blue_go_to_two_clusters_at_once(
    make_estate: MakeEstate,
    green: ClusterConnection,
    on_blue: AdminClient,
    tmp_path_factory: pytest.TempPathFactory,
    start_clusters: StartClusters,
) -> None:
    """A cluster stores one redirect: neither run needs it."""
    with start_clusters(tmp_path_factory.mktemp("third"), clusters=("third",)) as sandbox:
        third = ClusterConnection(
            name="third", admin_url=sandbox["third"].admin_url, service_url=sandbox["third"].service_url
        )
        before = await stored_redirect(on_blue, "blue")
        estates = [await make_estate(cluster) for cluster in (green, third)]
        await asyncio.sleep(1)
        await asyncio.gather(*(estate.copy() for estate in estates))
        for estate in estates:
            await estate.poll()
            for application in (*estate.subscribers, *estate.publishers):
                await estate.connect(application)
        await asyncio.gather(*(estate.left() for estate in estates))
        results = await asyncio.gather(*(estate.terminate() for estate in estates))
        for estate, result in zip(estates, results, strict=True):
            await estate.finish()
            await estate.settle()
            stated = estate.twice(result)
            received = {subscriber.subscription: subscriber.received.twice() for subscriber in estate.subscribers}
            assert received == {name: stated[name] for name in received}
        assert await stored_redirect(on_blue, "blue") == before
        for estate in estates:
            for application in (*estate.publishers, *estate.subscribers):
                await asyncio.to_thread(application.stop)


@pytest.fixture
async def exchanged(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName], tmp_path: Path
) -> AsyncIterator[MovedNamespace]:
    """A namespace that both clusters replicate to each other, one topic by a list of its own; both have messages."""
    moved = MovedNamespace.at(on_blue, on_green, new_namespace(), tmp_path)
    await replicate_both_ways(on_blue, on_green, moved.namespace)
    for admin in (on_blue, on_green):
        await admin.post(f"/namespaces/{moved.namespace.path}/retention", FOREVER)
    stored = await make_topics(on_blue, on_green, [moved.topic("live")], [moved.topic("parts")])
    for admin in (on_blue, on_green):
        await admin.post(f"/{moved.topic('live').path}/replication", ["blue", "green"])
    for side in (moved.blue, moved.green):
        await asyncio.to_thread(publish, side.connection, stored, [side.connection.name])
    yield moved
    await moved.close()


async def lists_of(moved: MovedNamespace) -> list[tuple[list[str], list[str]]]:
    """Clusters of the namespace and of the topic that has a list of its own, on blue and on green."""
    paths = f"/namespaces/{moved.namespace.path}/replication", f"/{moved.topic('live').path}/replication"
    both = [[sorted(await admin.get(path)) for path in paths] for admin in (moved.blue, moved.green)]
    return [(namespace, topic) for namespace, topic in both]


async def test_a_completion_that_died_after_the_termination_goes_on(
    exchanged: MovedNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then green replicates to blue, and then no more: the namespace, and a topic with a list of its own."""
    moves = await exchanged.until_cut_over(Strategy.COMPLETE)
    with monkeypatch.context() as patch:
        patch.setattr(terminate, "end_replication", died)
        with pytest.raises(Unavailable, match="died"):
            await exchanged.cut_over(moves)
    assert await unterminated_partitions(exchanged.blue, moves.moves[0]) == ()
    assert await lists_of(exchanged) == [(["blue", "green"],) * 2] * 2
    await exchanged.cut_over(moves)
    await exchanged.finish(moves)
    assert exchanged.phase == Phase.FINISHED
    assert await lists_of(exchanged) == [(["blue"],) * 2, (["green"],) * 2]
    # Each step may be run again.
    await exchanged.cut_over(moves)
    await exchanged.finish(moves)


async def died(*_: object) -> bool:
    raise Unavailable("died")


async def test_an_abort_keeps_a_topic_to_which_an_application_has_been_connected(moved: MovedNamespace) -> None:
    """It may be restarting: its producer would create an empty topic again, and its consumer a new subscription."""
    other = moved.topic("other")
    await moved.blue.create_topic(other)
    moves = await moved.until_cut_over(Strategy.REPOINT)
    await repoint_progress(moved.sides, moved.run, moves)
    client = open_client(moved.sides.green)
    await asyncio.to_thread(client.create_producer, str(moved.topic("live")))
    await repoint_progress(moved.sides, moved.run, moves)
    await asyncio.to_thread(client.close)
    await abort_migration(moved.sides, moved.run, moves)
    assert await moved.green.topics(moved.namespace) == (moved.topic("live"),)


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.timeout(240)
async def test_an_abort_restores_blue_and_keeps_what_applications_use_on_green(
    estate: Estate, blue: ClusterConnection, green: ClusterConnection, on_blue: AdminClient, on_green: AdminClient
) -> None:
    path = f"/namespaces/{estate.namespace.path}/replication"
    await asyncio.sleep(1)
    await estate.copy()
    await estate.poll()
    billing, *others = estate.subscribers
    await asyncio.to_thread(billing.restart, green)
    await estate.poll()
    await asyncio.to_thread(billing.stop)  # its subscription holds what it has not read on green
    partitions = estate.topic("events").partitions(3)
    for partition in partitions:
        while not (await on_green.stats(partition))["subscriptions"]["billing"]["msgBacklog"]:
            await asyncio.sleep(0.2)
    aborted = await abort_migration(estate.sides, estate.run, estate.moves)
    assert {f"subscription 'billing' of {partition} (in use)" for partition in partitions} <= set(aborted.kept)
    for partition in partitions:
        kept = (await on_green.stats(partition, precise=False))["subscriptions"]
        assert {"billing", "fraud", ARCHIVE} & kept.keys() == {"billing"}
    assert await on_blue.get(path) == ["blue"]
    await estate.received_by(others)
    assert estate.run.ledger.last_phase(str(estate.namespace)) == Phase.ABORTED
