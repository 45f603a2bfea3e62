"""Which of two edits is the later one, although no two clocks are alike, and what is said where nobody can know."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange, becomes
from tests.support.kinds import StartClusters
from tests.support.proxy import CallFault, Proxy, slow
from tests.support.reconciler import (
    MAX_CONSUMERS,
    MAX_PRODUCERS,
    MAX_SUBSCRIPTIONS,
    MAX_UNACKED,
    Reconciler,
    held,
    make_namespaces,
    set_policy,
)
from tests.support.shifted_clock import shifted_clock

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import ReconciliationStore, RecordedConflict
from pulsar_fleet.policy_sync.events.ordering.updates import Order
from pulsar_fleet.policy_sync.merge.merge_resource import Rule, TieBreak
from pulsar_fleet.report.metadata import lines, metrics

pytestmark = pytest.mark.long
KEPT = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}
ALMOST_NOTHING = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1000}
AHEAD_SECONDS = 30.0
SKEW_SECONDS = 0.2
TELLING_SECONDS = 3.0
"""Longer than all that two measured clocks may be apart."""
NewNamespace = Callable[[], NamespaceName]


@pytest.fixture
async def shared(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> NamespaceName:
    """A namespace that both clusters have, with a topic."""
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    for admin in (on_blue, on_green):
        # A topic that nobody uses would be gone after a minute.
        await admin.post(f"/namespaces/{name.path}/inactiveTopicPolicies", KEPT)
        await admin.create_topic(TopicName(name, "events"))
        await admin.post(f"/{TopicName(name, 'events').path}/maxProducers", 4)
    return name


@pytest.fixture
async def exchange(
    shared: NamespaceName,
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
) -> AsyncIterator[Exchange]:
    """Events of its tenant, after the clusters have told each other all that they have."""
    fleet = Exchange.of(shared.tenant, blue, green, skew_seconds=SKEW_SECONDS)
    await fleet.settle()
    yield fleet
    await fleet.remove(on_blue, on_green)


@contextmanager
def followers_apart(exchange: Exchange, folder: Path, ahead: float) -> Iterator[None]:
    """A follower of each cluster on a host of its own: the clock of blue's is behind, that of green's ahead."""
    blue, green = exchange.connections
    options = {"skew_seconds": str(SKEW_SECONDS)}
    with (
        exchange.follower(folder, only=blue, ahead=-ahead, **options),
        exchange.follower(folder, only=green, ahead=ahead, **options),
    ):
        yield


def recorded() -> list[RecordedConflict]:
    return [conflict for _, conflict in ReconciliationStore(Ledger.open(), ("blue", "green")).conflicts()]


@pytest.mark.parametrize("ahead", [AHEAD_SECONDS, -AHEAD_SECONDS])
async def test_the_later_edit_wins_however_wrong_the_clocks_of_the_followers_are(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, records: Path, ahead: float
) -> None:
    topic = TopicName(shared, "events")
    first, second = (on_green, on_blue) if ahead > 0 else (on_blue, on_green)
    await first.post(f"/{topic.path}/maxProducers", 6)
    await asyncio.sleep(TELLING_SECONDS)
    await second.post(f"/{topic.path}/maxProducers", 5)
    with followers_apart(exchange, records, ahead):
        for admin in (on_blue, on_green):
            await becomes(partial(admin.get, f"/{topic.path}/maxProducers"), 5)
    (conflict,) = recorded()
    assert (conflict.rule, conflict.winner) == (Rule.TIME, "blue" if ahead > 0 else "green")
    logs = "".join(log.read_text() for log in records.glob("follower-*.log"))
    offsets = sorted(float(seconds) for seconds in re.findall(r"is ([-+.0-9]+) s ahead of this host's", logs))
    assert offsets == pytest.approx([-AHEAD_SECONDS, AHEAD_SECONDS], abs=1.5)


@pytest.mark.parametrize("ahead", [AHEAD_SECONDS, -AHEAD_SECONDS])
async def test_of_two_independent_edits_of_a_namespace_the_later_one_wins(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, records: Path, ahead: float
) -> None:
    """The time of such an edit is known from two scans; replication waits meanwhile, so that no event arrives."""
    event_topic = exchange.request.event_topic
    rate = f"/namespaces/{event_topic.namespace.path}/replicatorDispatchRate"
    first, second = (on_green, on_blue) if ahead > 0 else (on_blue, on_green)
    with followers_apart(exchange, records, ahead):
        for admin, field in ((on_blue, MAX_CONSUMERS), (on_green, MAX_SUBSCRIPTIONS)):
            await set_policy(admin, shared, field[0], 1)
        for admin, field in ((on_green, MAX_CONSUMERS), (on_blue, MAX_SUBSCRIPTIONS)):
            await becomes(partial(held, admin, shared, (field[1],)), {field[1]: 1})
        for admin in (on_blue, on_green):
            await admin.post(rate, ALMOST_NOTHING)
            # The rate lets one event pass.
            await set_policy(admin, shared, MAX_UNACKED[0], 9)
        await asyncio.sleep(2)
        await set_policy(first, shared, MAX_PRODUCERS[0], 6)
        await asyncio.sleep(TELLING_SECONDS + 2)
        await set_policy(second, shared, MAX_PRODUCERS[0], 5)
        for admin, peer in ((on_blue, "green"), (on_green, "blue")):
            await becomes(partial(_waits, admin, exchange, peer), value=True)
        assert await held(first, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: 6}
        for admin in (on_blue, on_green):
            await admin.delete(rate)
        for admin in (on_blue, on_green):
            await becomes(partial(held, admin, shared, (MAX_PRODUCERS[1],)), {MAX_PRODUCERS[1]: 5})
    (conflict,) = (conflict for conflict in recorded() if conflict.field == MAX_PRODUCERS[1])
    assert (conflict.rule, conflict.winner) == (Rule.TIME, "blue" if ahead > 0 else "green")


async def _waits(admin: AdminClient, exchange: Exchange, peer: str) -> bool:
    """Whether events wait on a cluster for its replication to another one."""
    stats = await admin.stats(exchange.request.event_topic)
    return bool(stats["replication"][peer]["replicationBacklog"])


async def test_two_edits_within_the_skew_are_a_conflict_with_a_choice(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, records: Path
) -> None:
    with followers_apart(exchange, records, AHEAD_SECONDS):
        await asyncio.gather(
            set_policy(on_blue, shared, MAX_PRODUCERS[0], 5), set_policy(on_green, shared, MAX_PRODUCERS[0], 7)
        )
        await becomes(lambda: asyncio.to_thread(lambda: len(recorded())), 1)
    await exchange.settle()
    (conflict,) = recorded()
    assert conflict.rule == Rule.UNCERTAIN
    values = {cluster: side["value"] for cluster, side in conflict.sides.items()}
    assert values == {"blue": 5, "green": 7}
    for admin in (on_blue, on_green):
        assert await held(admin, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: values[conflict.winner]}
    (loser,) = {"blue", "green"} - {conflict.winner}
    keeper = Reconciler.of(shared.tenant, *exchange.connections)
    (conflict_id,) = (key for key, _ in keeper.store.conflicts())
    await keeper.cycle(choose={conflict_id: loser})
    await exchange.settle()
    for admin in (on_blue, on_green):
        assert await held(admin, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: values[loser]}
    assert len(recorded()) == 1


async def test_an_edit_by_someone_who_had_the_other_one_is_no_conflict(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, records: Path
) -> None:
    with followers_apart(exchange, records, AHEAD_SECONDS):
        for value in range(5, 9):
            editor, reader = (on_blue, on_green) if value % 2 else (on_green, on_blue)
            await set_policy(editor, shared, MAX_PRODUCERS[0], value)
            await becomes(partial(held, reader, shared, (MAX_PRODUCERS[1],)), {MAX_PRODUCERS[1]: value})
    assert recorded() == []


async def test_a_run_names_its_reference_clock_and_lists_the_conflicts(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await set_policy(on_blue, shared, MAX_CONSUMERS[0], 5)
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    result = await exchange.run()
    gauges = metrics(result)
    assert gauges["conflicts"] == 1
    assert gauges["clock_uncertainty.blue"] < gauges["clock_uncertainty.green"] + 1 < 3
    assert abs(gauges["clock_skew.green"]) < 1
    text = "\n".join(lines(result))
    assert "green: edits are ordered by the clock of blue" in text
    ((conflict_id, _),) = ReconciliationStore(Ledger.open(), ("blue", "green")).conflicts()
    assert f"CONFLICT {conflict_id}  namespace {shared} {MAX_CONSUMERS[1]}: " in text


@pytest.mark.parametrize("tie_break", TieBreak)
async def test_at_equal_times_the_smaller_or_the_larger_cluster_name_wins(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    records: Path,
    tie_break: TieBreak,
) -> None:
    """Before the first scan of a fleet no value has a time, so all times are equal."""
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    await set_policy(on_blue, name, MAX_PRODUCERS[0], 5)
    await set_policy(on_green, name, MAX_PRODUCERS[0], 7)
    fleet = Exchange.of(name.tenant, blue, green, order=Order(tie_break=tie_break))
    await fleet.settle()
    winner, value = ("blue", 5) if tie_break is TieBreak.SMALLER else ("green", 7)
    for admin in (on_blue, on_green):
        assert await held(admin, name, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: value}
    (conflict,) = recorded()
    assert (conflict.rule, conflict.winner, conflict.field) == (Rule.NAME, winner, MAX_PRODUCERS[1])
    await fleet.remove(on_blue, on_green)


@pytest.mark.parametrize("overwritten", [7, None])
async def test_a_topic_policy_that_an_event_overwrites_unseen_is_on_record(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, overwritten: int | None
) -> None:
    """Somebody edits it after the event was checked and before it is written: only the topic of policies has it."""
    blue, green = exchange.connections
    path = f"/{TopicName(shared, 'events').path}/maxProducers"
    await on_blue.post(path, 5)
    async with Proxy(green.admin_url) as proxy:
        proxy.answers = [CallFault(f"POST .*{path}", slow(2.0), times=1)]
        through = replace(exchange, connections=(blue, replace(green, admin_url=proxy.url)))
        run = asyncio.create_task(through.run())
        while not proxy.calls(f"POST .*{path}"):
            assert not run.done()
            await asyncio.sleep(0.02)
        await (on_green.delete(path) if overwritten is None else on_green.post(path, overwritten))
        result = await run
    assert [await admin.get(path) for admin in (on_blue, on_green)] == [5, 5]
    assert [tally.conflicts for tally in result.clusters.values()] == [0, 1]
    (conflict,) = recorded()
    assert (conflict.rule, conflict.winner, conflict.field) == (Rule.UNCERTAIN, "blue", "local/maxProducerPerTopic")
    assert {name: side["value"] for name, side in conflict.sides.items()} == {"blue": 5, "green": overwritten}
    await exchange.settle()
    keeper = Reconciler.of(shared.tenant, *exchange.connections)
    (conflict_id,) = (key for key, _ in keeper.store.conflicts())
    await keeper.cycle(choose={conflict_id: "green"})
    await exchange.settle()
    assert [await admin.get(path) for admin in (on_blue, on_green)] == [overwritten, overwritten]


@pytest.fixture
def fast(tmp_path: Path, start_clusters: StartClusters) -> Iterator[ClusterConnection]:
    """A third cluster, whose brokers' clock is ahead."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", shifted_clock(tmp_path, AHEAD_SECONDS))
        sandbox = start_clusters(tmp_path / "sandbox", clusters=("red",))
    with sandbox:
        cluster = sandbox["red"]
        yield ClusterConnection(name="red", admin_url=cluster.admin_url, service_url=cluster.service_url)


async def test_the_later_edit_wins_although_the_clocks_of_the_brokers_differ(
    on_blue: AdminClient,
    blue: ClusterConnection,
    fast: ClusterConnection,
    new_namespace: NewNamespace,
    records: Path,
) -> None:
    name = new_namespace()
    topic = TopicName(name, "events")
    async with AdminClient(fast) as on_fast:
        await make_namespaces([name], on_blue, on_fast)
        for admin in (on_blue, on_fast):
            await admin.post(f"/namespaces/{name.path}/inactiveTopicPolicies", KEPT)
            await admin.create_topic(topic)
            await admin.post(f"/{topic.path}/maxProducers", 4)
        fleet = Exchange.of(name.tenant, blue, fast, skew_seconds=SKEW_SECONDS)
        await fleet.settle()
        await on_fast.post(f"/{topic.path}/maxProducers", 6)
        await asyncio.sleep(TELLING_SECONDS)
        await on_blue.post(f"/{topic.path}/maxProducers", 5)
        result = await fleet.run()
        assert [await admin.get(f"/{topic.path}/maxProducers") for admin in (on_blue, on_fast)] == [5, 5]
        assert [tally.conflicts for tally in result.clusters.values()] == [0, 1]
        ((_, conflict),) = ReconciliationStore(Ledger.open(), ("blue", "red")).conflicts()
        assert (conflict.rule, conflict.winner) == (Rule.TIME, "blue")
        (offset,) = re.findall(r"and ([-+.0-9]+) s ahead of red's", "\n".join(lines(result)))
        assert float(offset) == pytest.approx(-AHEAD_SECONDS, abs=1.5)
        await fleet.remove(on_blue, on_fast)
