"""A cluster that is added to a list is checked as before an onboarding, by events and by reconciliation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.event_exchange import Exchange
from tests.support.reconciler import Reconciler, held, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.polling import is_kept
from pulsar_fleet.policy_sync.reconcile.steps import read_plans

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

LISTS = ("replication_clusters",)
BOTH = ["blue", "green"]


@pytest.fixture
async def exchange(
    exchange: Exchange, shared: NamespaceName, on_blue: AdminClient, on_green: AdminClient
) -> AsyncIterator[Exchange]:
    """The clusters know each other; afterwards nothing is replicated."""
    yield exchange
    for admin, own in ((on_blue, "blue"), (on_green, "green")):
        await admin.post(f"/namespaces/{shared.path}/replication", [own])
        await admin.post(f"/tenants/{shared.tenant}", {"adminRoles": [], "allowedClusters": [own]})


async def replicate_on_blue(on_blue: AdminClient, shared: NamespaceName) -> None:
    """What an operator does to replicate a namespace."""
    await on_blue.post(f"/tenants/{shared.tenant}", {"adminRoles": [], "allowedClusters": BOTH})
    await on_blue.post(f"/namespaces/{shared.path}/replication", BOTH)


async def make_topics(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, green_partitions: int
) -> None:
    topic = TopicName(shared, "events")
    for admin, partitions in ((on_blue, 2), (on_green, green_partitions)):
        await admin.put(f"/{topic.path}/partitions", partitions)


@pytest.mark.needs_pulsar("4.0", "an older cluster is not added to a list")
async def test_an_event_does_not_turn_one_way_replication_into_both(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await make_topics(on_blue, on_green, shared, 2)
    await replicate_on_blue(on_blue, shared)
    await exchange.run()
    assert await held(on_green, shared, LISTS) == {"replication_clusters": ["green"]}
    (reason,) = [letter["reason"] for letter in exchange.dead_letters(exchange.connections[1])]
    assert "sent back to blue, which only sends to it now" in reason
    assert sorted((await held(on_blue, shared, LISTS))["replication_clusters"]) == BOTH


@pytest.mark.long
@pytest.mark.needs_pulsar("4.0", "an older cluster is not added to a list")
async def test_an_event_that_begins_an_unworkable_replication_is_dead_lettered(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await make_topics(on_blue, on_green, shared, 3)
    await replicate_on_blue(on_blue, shared)
    result = await exchange.run(partitioned_topics=False)
    assert await held(on_green, shared, LISTS) == {"replication_clusters": ["green"]}
    reasons = [letter["reason"] for letter in exchange.dead_letters(exchange.connections[1])]
    assert any("blue is not added to the list on green: partition" in reason for reason in reasons), reasons
    assert result.clusters["green"].refused == len(reasons)


@pytest.mark.long
async def test_reconciliation_leaves_such_a_list_alone_and_says_why(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    shared: NamespaceName,
    exchange: Exchange,
) -> None:
    await make_topics(on_blue, on_green, shared, 3)
    # With them the partitions would be added, and the clusters could replicate.
    keeper = Reconciler.of(shared.tenant, blue, green, partitioned_topics=False)
    await keeper.cycle()
    await replicate_on_blue(on_blue, shared)
    drift, _ = await keeper.cycle()
    assert drift.left_alone >= 1
    assert await held(on_green, shared, LISTS) == {"replication_clusters": ["green"]}


async def test_reconciliation_writes_no_policy_that_a_cluster_cannot_carry(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    shared: NamespaceName,
    exchange: Exchange,
) -> None:
    """Green accepts them: then its topics cannot be used, or no replicator connects (observed, 4.2.4)."""
    for admin in (on_blue, on_green):
        await admin.post(f"/tenants/{shared.tenant}", {"adminRoles": [], "allowedClusters": BOTH})
        await admin.post(f"/namespaces/{shared.path}/replication", BOTH)
    keeper = Reconciler.of(shared.tenant, blue, green)
    await keeper.cycle()
    before = await held(on_green, shared, ("persistence", "encryption_required"))
    quorums = {"bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 0.0}
    await set_policy(on_blue, shared, "persistence", {"bookkeeperEnsemble": 5, **quorums})
    await set_policy(on_blue, shared, "encryptionRequired", True)
    await set_policy(on_blue, shared, "maxProducersPerTopic", 60)
    drift, _ = await keeper.cycle()
    assert await held(on_green, shared, ("persistence", "encryption_required")) == before
    assert drift.left_alone == 2
    assert await held(on_green, shared, ("max_producers_per_topic",)) == {"max_producers_per_topic": 60}


@pytest.mark.needs_pulsar("4.0", "an older cluster is not added to a list")
@pytest.mark.parametrize("of_green", ["STRING", "INT32"])
async def test_a_topics_own_list_is_checked_as_its_namespaces(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    shared: NamespaceName,
    exchange: Exchange,
    of_green: str,
) -> None:
    """Brokers compare the partitions before they store a topic's list, and not the schemas (observed, 4.2.4)."""
    await make_topics(on_blue, on_green, shared, 2)
    events = TopicName(shared, "events")
    for admin, kind in ((on_blue, "STRING"), (on_green, of_green)):
        await admin.post_schema(events, {"type": kind, "schema": "", "properties": {}})
    keeper = Reconciler.of(shared.tenant, blue, green, partitioned_topics=False)
    await keeper.cycle()
    for admin in (on_blue, on_green):
        await admin.post(f"/tenants/{shared.tenant}", {"adminRoles": [], "allowedClusters": BOTH})
    path = f"/{events.path}/replication"
    await on_blue.post(path, BOTH)

    async def is_listed() -> bool:
        return bool(await on_blue.get(path))

    assert await is_kept(is_listed)
    drift, _ = await keeper.cycle()
    works = of_green == "STRING"
    assert not await on_green.get(path)
    assert drift.left_alone == (not works)
    asking = [change for plan in read_plans(drift, keeper.run).values() for change in plan.needing_permission()]
    assert ["sent back to blue" in change.reason for change in asking] == [True] * works
    await keeper.cycle(allow=frozenset(change.id for change in asking))
    assert sorted(await on_green.get(path) or []) == (BOTH if works else [])


@pytest.mark.long
async def test_a_follower_without_a_connection_to_the_cluster_does_not_add_it(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await replicate_on_blue(on_blue, shared)
    connections = exchange.connections
    for only in connections:
        exchange.connections = (only,)
        result = await exchange.run()
    exchange.connections = connections
    assert await held(on_green, shared, LISTS) == {"replication_clusters": ["green"]}
    assert any("name the connection of blue too" in reason for reason in result.clusters["green"].reasons)
