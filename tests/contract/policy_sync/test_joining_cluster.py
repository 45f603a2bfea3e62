"""A cluster that joins a fleet under events: it becomes equal by itself, and nothing that it brings wins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.support.event_exchange import Exchange, becomes
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, MAX_SUBSCRIPTIONS, held, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import ReconciliationStore, RecordedConflict
from pulsar_fleet.policy_sync.events.fleet import Members
from pulsar_fleet.policy_sync.events.ordering.updates import Order
from pulsar_fleet.policy_sync.merge.merge_resource import Rule, TieBreak
from pulsar_fleet.report.metadata import headline

pytestmark = pytest.mark.long
NewNamespace = Callable[[], NamespaceName]


@pytest.fixture
async def shared(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> NamespaceName:
    """A namespace of blue and green, with a value that has no time and one that will have one."""
    name = new_namespace()
    await make_namespaces([name], on_blue, on_green)
    for admin in (on_blue, on_green):
        await set_policy(admin, name, MAX_CONSUMERS[0], 7)
    return name


@pytest.fixture
async def exchange(
    shared: NamespaceName,
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    on_red: AdminClient,
) -> AsyncIterator[Exchange]:
    """Events of its tenant on blue and green; by name red would win."""
    fleet = Exchange.of(shared.tenant, blue, green, order=Order(tie_break=TieBreak.LARGER))
    await fleet.settle()
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await fleet.settle()
    yield fleet
    await fleet.remove(on_blue, on_green, on_red)
    with suppress(FleetError):
        await on_red.delete(f"/namespaces/{shared.path}")
        await on_red.delete(f"/tenants/{shared.tenant}")


async def bring_values(on_red: AdminClient, shared: NamespaceName) -> None:
    """What red has before it joins: two other values, and one that no other cluster has."""
    await make_namespaces([shared], on_red)
    for path, value in ((MAX_PRODUCERS[0], 1), (MAX_CONSUMERS[0], 2), (MAX_SUBSCRIPTIONS[0], 3)):
        await set_policy(on_red, shared, path, value)


AGREED = {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: 7, MAX_SUBSCRIPTIONS[1]: 3}


def recorded() -> dict[str, RecordedConflict]:
    store = ReconciliationStore(Ledger.open(), ("blue", "green", "red"))
    return {conflict.field: conflict for _, conflict in store.conflicts()}


async def test_an_empty_cluster_gets_everything_before_it_publishes(
    on_red: AdminClient, red: ClusterConnection, shared: NamespaceName, exchange: Exchange
) -> None:
    exchange.connections = (*exchange.connections, red)
    result = await exchange.run()
    assert result.clusters["red"].published == 0
    assert not result.clusters["red"].joins
    agreed = {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: 7, "replication_clusters": ["red"]}
    assert await held(on_red, shared, agreed) == agreed
    assert (await on_red.tenant(shared.tenant) or {})["allowedClusters"] == ["red"]
    assert sum(tally.published > 0 for tally in result.clusters.values()) == 1, "one snapshot"
    await exchange.settle()
    await set_policy(on_red, shared, MAX_PRODUCERS[0], 6)
    await exchange.settle()
    assert recorded() == {}
    assert await held(on_red, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: 6}


async def test_what_a_snapshot_left_out_is_said_and_published_later(
    on_blue: AdminClient,
    on_red: AdminClient,
    red: ClusterConnection,
    shared: NamespaceName,
    exchange: Exchange,
) -> None:
    moving = NamespaceName(shared.tenant, "moving")
    await on_blue.put(f"/namespaces/{moving.path}", {"replication_clusters": ["blue"], MAX_PRODUCERS[1]: 4})
    await exchange.settle()
    ledger = Ledger.open()
    ledger.start_run("migrate/1", "migrate_namespaces", {})
    ledger.enter_phase("migrate/1", str(moving), "prepared")
    exchange.connections = (*exchange.connections, red)
    result = await exchange.run()
    assert (await on_red.namespace(moving), result.clusters["red"].joins) == (None, False)
    (lacks,) = result.clusters["red"].lacks
    assert lacks.startswith(f"{moving}: it is in a migration on ")
    assert "INCOMPLETE: red" in headline(result)
    ledger.finish_run("migrate/1", "succeeded")
    after = await exchange.run(snapshot_minutes=0)
    assert await held(on_red, moving, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: 4}
    assert after.clusters["red"].lacks == ()
    assert "INCOMPLETE" not in headline(after)


async def test_values_of_a_joining_cluster_lose_on_record_or_are_carried(
    on_blue: AdminClient,
    on_green: AdminClient,
    on_red: AdminClient,
    red: ClusterConnection,
    shared: NamespaceName,
    exchange: Exchange,
) -> None:
    await bring_values(on_red, shared)
    exchange.connections = (*exchange.connections, red)
    result = await exchange.run()
    assert result.clusters["red"].published == 0
    assert await held(on_red, shared, AGREED) == AGREED
    await exchange.settle()
    for admin in (on_blue, on_green, on_red):
        assert await held(admin, shared, AGREED) == AGREED
    conflicts = recorded()
    assert sorted(conflicts) == sorted((MAX_PRODUCERS[1], MAX_CONSUMERS[1]))
    assert {conflict.rule for conflict in conflicts.values()} == {Rule.JOINED}
    assert conflicts[MAX_PRODUCERS[1]].sides["red"]["value"] == 1


async def test_a_follower_sees_that_its_fleet_grows_and_publishes_one_snapshot(
    on_blue: AdminClient,
    on_green: AdminClient,
    on_red: AdminClient,
    red: ClusterConnection,
    shared: NamespaceName,
    exchange: Exchange,
    records: Path,
) -> None:
    await bring_values(on_red, shared)
    options = {"tie_break": "larger"}
    with exchange.follower(records, **options) as first:
        exchange.connections = (*exchange.connections, red)
        with exchange.follower(records, **options):
            for admin in (on_red, on_blue, on_green):
                await becomes(partial(held, admin, shared, AGREED), AGREED, 90)
            await set_policy(on_red, shared, MAX_PRODUCERS[0], 8)
            await becomes(partial(held, on_green, shared, (MAX_PRODUCERS[1],)), {MAX_PRODUCERS[1]: 8})
        assert first.poll() is None
    members = Members(Ledger.open(), exchange.request.event_topic)
    assert [members.joins(name) for name in ("blue", "green", "red")] == [False, False, False]
    logs = "".join(log.read_text() for log in records.glob("follower-*.log"))
    assert logs.count("publishes a snapshot for red") == 1
    assert {conflict.rule for conflict in recorded().values()} == {Rule.JOINED}


async def test_a_joining_cluster_creates_nothing_whose_deletion_waits_elsewhere(
    on_blue: AdminClient,
    on_green: AdminClient,
    on_red: AdminClient,
    shared: NamespaceName,
    exchange: Exchange,
    red: ClusterConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = NamespaceName(shared.tenant, "gone")
    await on_blue.put(f"/namespaces/{gone.path}", {"replication_clusters": ["blue"]})
    await exchange.settle()
    await on_green.delete(f"/namespaces/{gone.path}")
    await exchange.settle()
    claim = Members.claim_snapshot
    # Blue, where the deletion waits, publishes the snapshot.
    monkeypatch.setattr(Members, "claim_snapshot", lambda *args: claim(*args) if args[1] == "blue" else ())
    exchange.connections = (*exchange.connections, red)
    await exchange.settle()
    assert [await admin.namespace(gone) is not None for admin in (on_blue, on_green, on_red)] == [True, False, False]
    assert await on_red.namespace(shared) is not None
    waiting = (await exchange.run()).clusters["blue"].pending_deletions
    assert waiting is not None
    assert waiting.resources == (f"namespace {gone}: deleted on green",)
