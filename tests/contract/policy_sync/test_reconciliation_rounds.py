"""Two and three real clusters that people edit at once, whose clocks jump, and of which one is down for a while."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.kinds import StartClusters
from tests.support.policy_edits import Edit, Edits, Field, edit, fields_of, held_on
from tests.support.proxy import Proxy
from tests.support.reconciler import (
    MAX_CONSUMERS,
    MAX_PRODUCERS,
    MAX_UNACKED,
    Reconciler,
    held,
    make_namespaces,
    set_policy,
)
from tests.support.shifted_clock import shifted_clock

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import measure_clock_skew
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.reconciliation_store import ReconciliationStore
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity, Rule, TieBreak
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, RepairSummary
from pulsar_fleet.report.reconciliation import failure, metrics, reconciliation_report
from pulsar_sandbox import Sandbox
from pulsar_sandbox.sandbox.clusters import Cluster

pytestmark = pytest.mark.long


log = logging.getLogger(__name__)

ROUNDS = int(os.environ.get("PULSAR_FLEET_EDIT_ROUNDS", "2"))
OUTAGE_SECONDS = float(os.environ.get("PULSAR_FLEET_OUTAGE_SECONDS", "2"))
SKEW_SECONDS = 2
AHEAD_SECONDS = 4
"""Of the third cluster's clock."""
TELLING_SECONDS = 2.4
"""Edits that lie so far apart can be told: of each clock half a second stays open on either side."""
KEPT = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}
NewNamespace = Callable[[], NamespaceName]
Held = dict[Field, dict[str, Json]]


@dataclass(kw_only=True)
class Arena:
    """A fleet with two namespaces and a topic that people edit, and what became of their edits."""

    admins: dict[str, AdminClient]
    clocks: list[Proxy]
    keeper: Reconciler
    fields: tuple[Field, ...]
    chance: random.Random
    tally: Counter[str] = field(default_factory=Counter)

    async def play(self, *, in_flight: bool) -> tuple[Edits, list[DriftSummary], Held]:
        """One round: edit, and reconcile until nothing differs; returns what was edited, found, and is held then.

        :param in_flight: clusters are reconciled while people edit, otherwise afterwards.
        """
        for clock in self.clocks:
            clock.date_ahead = self.chance.randint(-SKEW_SECONDS, SKEW_SECONDS)
        # The order in which the clusters are looked at makes no difference.
        self.keeper.connections = tuple(self.chance.sample(self.keeper.connections, len(self.clocks)))
        editing = asyncio.create_task(edit(self.admins, self.fields, self.chance, paused=in_flight))
        runs: list[DriftSummary] = []
        while in_flight and not editing.done():
            runs.append((await self.keeper.cycle_allowing())[0])
        edits = await editing
        runs += await self._settle()
        final = await held_on(self.admins, self.fields)
        self.tally["runs"] += len(runs)
        self.tally["conflicts"] += sum(run.conflicts for run in runs)
        return edits, runs, final

    async def _settle(self) -> list[DriftSummary]:
        runs: list[DriftSummary] = []
        for _ in range(5):
            looked, repaired = await self.keeper.cycle_allowing()
            runs.append(looked)
            if not looked.drifting:
                return runs
        raise AssertionError(f"still not equal: {looked.headline} {repaired}")


@asynccontextmanager
async def arena(
    name: NamespaceName, *connections: ClusterConnection, granularity: Granularity = Granularity.FIELD
) -> AsyncIterator[Arena]:
    """Clusters that hold the same, each behind a proxy that shifts its clock."""
    async with AsyncExitStack() as stack:
        clocks = [await stack.enter_async_context(Proxy(connection.admin_url)) for connection in connections]
        admins = {
            connection.name: await stack.enter_async_context(AdminClient(connection)) for connection in connections
        }
        names = [name, NamespaceName(name.tenant, "payments")]
        topics = [TopicName(each, "events") for each in names]
        await make_namespaces(names, *admins.values())
        for admin in admins.values():
            for topic in topics:
                # A topic that nobody uses would be gone after a minute.
                await admin.post(f"/namespaces/{topic.namespace.path}/inactiveTopicPolicies", KEPT)
                await admin.create_topic(topic)
        shifted = [
            replace(connection, admin_url=clock.url) for connection, clock in zip(connections, clocks, strict=True)
        ]
        keeper = Reconciler.of(name.tenant, *shifted, granularity=granularity, skew_seconds=SKEW_SECONDS)
        chance = random.Random(f"{len(connections)} {granularity}")
        # Of a namespace without an older topic nobody knows whether it was created again: what it lacks is left alone.
        for admin in admins.values():
            for topic in topics:
                await keeper.cycle_until_older(admin, topic)
        yield Arena(admins=admins, clocks=clocks, keeper=keeper, fields=fields_of(names, topics[:1]), chance=chance)


@pytest.fixture(scope="module")
def third(
    clusters: Sandbox, tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[Cluster]:
    """A third cluster, which can be stopped, and whose clock is ahead until then; the others are started before."""
    folder = tmp_path_factory.mktemp("red")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", shifted_clock(folder, AHEAD_SECONDS))
        sandbox = start_clusters(folder / "sandbox", clusters=("red",))
    with sandbox:
        yield sandbox["red"]


@pytest.fixture(scope="module")
def red(third: Cluster) -> ClusterConnection:
    """How to reach it."""
    return ClusterConnection(name="red", admin_url=third.admin_url, service_url=third.service_url)


@pytest.fixture(params=[2, 3], ids=["two clusters", "three clusters"])
def fleet(
    request: pytest.FixtureRequest, blue: ClusterConnection, green: ClusterConnection
) -> tuple[ClusterConnection, ...]:
    """Two clusters, and three."""
    return (blue, green) if request.param == 2 else (blue, green, request.getfixturevalue("red"))


@pytest.mark.full
async def test_concurrent_edits_end_identical_and_no_disjoint_edit_is_lost(
    fleet: tuple[ClusterConnection, ...], new_namespace: NewNamespace, records: Path
) -> None:
    async with arena(new_namespace(), *fleet) as played:
        for number in range(ROUNDS):
            in_flight = bool(number % 2)
            before = await held_on(played.admins, played.fields)
            edits, runs, final = await played.play(in_flight=in_flight)
            for edited_field, sides in edits.items():
                counted = sides if in_flight else changes(sides, before[edited_field]["blue"])
                played.tally["disjoint edits" if len(counted) == 1 else "edits in conflict"] += bool(counted)
                assert_one_of_the_edits_is_held(edited_field, counted, final[edited_field], certain=not in_flight)
            assert sum(run.lost for run in runs) == 0
    log.info("%d clusters, %d rounds by field: %s", len(fleet), ROUNDS, dict(played.tally))


@pytest.mark.full
@pytest.mark.needs_pulsar("4.0", "an older broker loses topic policies that are set at once")
async def test_as_whole_documents_just_the_edits_that_are_gone_count_as_lost(
    blue: ClusterConnection, green: ClusterConnection, new_namespace: NewNamespace, records: Path
) -> None:
    async with arena(new_namespace(), blue, green, granularity=Granularity.DOCUMENT) as played:
        for _ in range(ROUNDS):
            before = await held_on(played.admins, played.fields)
            edits, runs, final = await played.play(in_flight=False)
            assert all(value == values["blue"] for values in final.values() for value in values.values()), final
            changed = {
                edited_field: changes(sides, before[edited_field]["blue"]) for edited_field, sides in edits.items()
            }
            gone = [
                len(sides) for edited_field, sides in changed.items() if final[edited_field] == before[edited_field]
            ]
            assert sum(run.lost for run in runs) == sum(gone)
            played.tally["disjoint edits"] += sum(len(sides) == 1 for sides in changed.values())
            played.tally["disjoint edits lost"] += gone.count(1)
    log.info("2 clusters, %d rounds by document: %s", ROUNDS, dict(played.tally))


async def test_the_later_edit_wins_although_the_clock_of_its_cluster_is_behind(
    blue: ClusterConnection, red: ClusterConnection, new_namespace: NewNamespace, records: Path
) -> None:
    name = new_namespace()
    topic = TopicName(name, "events")
    async with AdminClient(blue) as on_blue, AdminClient(red) as on_red:
        apart = (await measure_clock_skew(on_red)).ahead - (await measure_clock_skew(on_blue)).ahead
        assert apart == pytest.approx(AHEAD_SECONDS, abs=1.2)
        await make_namespaces([name], on_blue, on_red)
        for admin in (on_blue, on_red):
            await admin.create_topic(topic)
            # Of the first event of a topic nobody knows whether others went before it.
            await admin.post(f"/{topic.path}/maxProducers", 4)
        # By its name red would win, and by the times as the clusters wrote them too.
        keeper = Reconciler.of(name.tenant, blue, red, tie_break=TieBreak.LARGER, skew_seconds=0.0)
        await keeper.cycle()
        await on_red.post(f"/{topic.path}/maxProducers", 6)
        await asyncio.sleep(TELLING_SECONDS)
        await on_blue.post(f"/{topic.path}/maxProducers", 5)
        drift, _ = await keeper.cycle()
        assert drift.conflicts == 1
        assert [await admin.get(f"/{topic.path}/maxProducers") for admin in (on_blue, on_red)] == [5, 5]
        ((_, conflict),) = ReconciliationStore(keeper.run.ledger, ("blue", "red")).conflicts()
        assert (conflict.rule, conflict.winner) == (Rule.TIME, "blue")


async def test_a_cluster_that_was_down_is_identical_in_the_first_run_after_it(
    blue: ClusterConnection,
    green: ClusterConnection,
    red: ClusterConnection,
    third: Cluster,
    new_namespace: NewNamespace,
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = new_namespace()
    async with AsyncExitStack() as stack:
        admins = [await stack.enter_async_context(AdminClient(connection)) for connection in (blue, green, red)]
        on_blue, on_green, on_red = admins
        await make_namespaces([name], *admins)
        keeper = Reconciler.of(name.tenant, blue, green, red)
        await keeper.cycle()
        last_run = time.time()
        await set_policy(on_red, name, MAX_UNACKED[0], 1)
        third.kill()
        monkeypatch.setattr("pulsar_fleet.policy_sync.reconcile.steps.PATIENCE_SECONDS", min(10.0, OUTAGE_SECONDS / 10))
        value, since = 1, set()
        while value == 1 or time.time() < last_run + OUTAGE_SECONDS:
            value += 1
            await set_policy(on_blue, name, MAX_PRODUCERS[0], value)
            await set_policy(on_green, name, MAX_CONSUMERS[0], value)
            drift, repaired = await keeper.cycle()
            assert drift.conflicts == 0
            expected = {MAX_PRODUCERS[1]: value, MAX_CONSUMERS[1]: value}
            assert [await held(admin, name, expected) for admin in (on_blue, on_green)] == [expected, expected]
            since.add(drift.behind["red"].last_seen)
            assert_red_is_said_to_be_behind(drift, repaired, time.time() - last_run)
        (last_seen,) = since
        assert last_seen == pytest.approx(last_run, abs=15)
        down = time.time() - last_run
        third.restart()
        returned = time.time()
        drift, repaired = await keeper.cycle()
        assert (drift.behind, drift.conflicts, repaired and repaired.problems) == ({}, 0, ())
        expected = {MAX_PRODUCERS[1]: value, MAX_CONSUMERS[1]: value, MAX_UNACKED[1]: 1}
        assert [await held(admin, name, expected) for admin in admins] == [expected] * 3
        caught_up = time.time() - returned
        assert (await keeper.find()).drifting == 0
    log.info("down for %.0f s, %d runs; equal %.1f s after it was healthy again", down, value - 1, caught_up)


def assert_red_is_said_to_be_behind(drift: DriftSummary, repaired: RepairSummary | None, seconds: float) -> None:
    at = datetime.fromtimestamp(drift.behind["red"].last_seen, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert f"red could not be reached, last seen {at}." in failure(drift, repaired, fail_on_drift=False)
    assert f"**red** is unreachable; its last scan was {at}." in reconciliation_report(drift, {}, repaired).markdown()
    gauges = metrics(drift, repaired)
    assert gauges["clusters_behind"] == 1
    assert gauges["behind_seconds.red"] == pytest.approx(seconds, abs=15)
    assert (gauges["behind_seconds.blue"], gauges["behind_seconds.green"]) == (0, 0)


def changes(sides: Mapping[str, Edit], before: Json) -> dict[str, Edit]:
    """Who set another value than all had."""
    return {name: edited for name, edited in sides.items() if edited.value != before}


def assert_one_of_the_edits_is_held(
    edited_field: Field, sides: Mapping[str, Edit], by_cluster: Mapping[str, Json], *, certain: bool
) -> None:
    """The only edit; or a later one than that of the smaller name, or that one where nobody could tell.

    :param certain: all was edited before the clusters were looked at, so that the winner is known.
    """
    assert all(value == by_cluster["blue"] for value in by_cluster.values()), (edited_field, by_cluster)
    if not sides:
        return
    assert by_cluster["blue"] in [edited.value for edited in sides.values()], (edited_field, sides, by_cluster)
    first = sides[min(sides)]
    if certain and by_cluster["blue"] != first.value:
        winner = next(edited for edited in sides.values() if edited.value == by_cluster["blue"])
        assert isinstance(edited_field.of, TopicName), (edited_field, sides, by_cluster)
        assert winner.ended > first.began, (edited_field, sides, by_cluster)
