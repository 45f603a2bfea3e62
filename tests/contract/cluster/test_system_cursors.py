"""Subscriptions that are called like the brokers' own cursors: every procedure takes the same ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from tests.contract.migration.test_cursor_transfer import (
    BATCH,
    Carried,
    Reader,
    deliveries,
    entries_of,
    make_reader,
    messages_in,
    write,
)

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import read_clients
from pulsar_fleet.migration.model import Move, Moves, PartitionClients, Strategy
from pulsar_fleet.migration.steps import restore_blue
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged
from pulsar_fleet.onboarding.steps import apply_onboarding, plan_onboarding, take_snapshot
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import EntryMapping
from pulsar_fleet.verification.steps import freeze_bounds
from pulsar_fleet.verification.subscriptions.steps import compare_subscriptions

pytestmark = pytest.mark.versions

APPLICATION, REPLICATOR = "pulsar.audit", "pulsar.replay"
MESSAGES = 600
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
NewNamespace = Callable[[], NamespaceName]


async def make_topic(admin: AdminClient, name: NamespaceName) -> TopicName:
    topic = TopicName(name, "history")
    own = await admin.cluster_name()
    await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
    await admin.put_namespace(name, {"replication_clusters": [own], "retention_policies": FOREVER})
    await admin.create_topic(topic)
    return topic


async def onboard(blue: ClusterConnection, green: ClusterConnection, name: NamespaceName, run: Run) -> None:
    """Copy the namespace with its topic and its subscriptions."""
    selection = Selection(namespaces=frozenset({name}))
    source, target = [
        await take_snapshot(side, selection, run.artefacts, run.id, name=kind)
        for side, kind in ((blue, "source"), (green, "target"))
    ]
    plan = plan_onboarding(source, target, run.artefacts)
    await apply_onboarding(blue, green, plan.plan, run.artefacts, run.ledger, run.id)


@pytest.mark.cluster
@pytest.mark.needs_pulsar("4.0", "an older broker flags no namespace")
async def test_onboarding_cut_over_and_verification_take_the_same_subscriptions(
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    on_blue: AdminClient,
    on_green: AdminClient,
    tmp_path: Path,
) -> None:
    topic, entries = await make_topic(on_blue, name := new_namespace()), MESSAGES // BATCH
    await asyncio.to_thread(write, blue, topic, range(MESSAGES))
    reader = Reader(entries // 2, {entries // 2 + 3})
    positions = await asyncio.to_thread(entries_of, blue, topic)
    await make_reader(on_blue, topic, APPLICATION, reader, positions)
    await on_blue.create_subscription(topic, REPLICATOR)
    run = Run("carried", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path)))

    await onboard(blue, green, name, run)
    assert await on_green.get(f"/{topic.path}/subscriptions") == [APPLICATION]

    move = Move(name, Strategy.REPLICATE, "", {topic: 0}, {topic: PartitionClients(0, {APPLICATION: 0}, {})})
    carried = Carried(Sides(blue, green, 5.0), run, Moves("blue", "green", (move,)), {})
    await carried.replicate()
    placed = await carried.switch(IndividuallyAcknowledged.CARRY)
    assert [(cursor["subscription"], cursor["unread"]) for cursor in placed] == [
        (APPLICATION, len(reader.unread(entries)))
    ]

    request = await freeze_bounds(on_blue, on_green, [name], mapping=EntryMapping.REPLICATED)
    verification = await compare_subscriptions(on_blue, on_green, request)
    verdicts = [
        verdict
        for namespace in verification.namespaces
        for compared in namespace.topics
        for verdict in compared.subscriptions
    ]
    assert [(verdict.subscription, verdict.verdict) for verdict in verdicts] == [(APPLICATION, Verdict.EQUAL)]
    await restore_blue(carried.sides, carried.run, carried.before, delete_topics=True)
    got = Counter(await asyncio.to_thread(deliveries, green, topic, APPLICATION))
    assert got == messages_in(reader.unread(entries))


async def test_a_broker_refuses_a_subscription_named_like_a_replicators_cursor(
    blue: ClusterConnection, new_namespace: NewNamespace, on_blue: AdminClient
) -> None:
    """Why it is not copied: on the other cluster it would keep what it has not read without an end."""
    topic = await make_topic(on_blue, new_namespace())
    await on_blue.create_subscription(topic, REPLICATOR)
    client = open_client(blue)
    with pytest.raises(pulsar.InvalidConfiguration):
        await asyncio.to_thread(client.subscribe, str(topic), REPLICATOR)
    client.close()
    await on_blue.put(f"/{topic.path}/unload")
    assert not (await on_blue.stats(topic))["subscriptions"]
    with pytest.raises(NotFound):
        await on_blue.delete_subscription(topic, REPLICATOR)
    assert REPLICATOR in (await on_blue.internal_stats(topic))["cursors"]


async def test_a_producer_that_is_called_almost_like_a_replicator_is_a_client(
    blue: ClusterConnection, new_namespace: NewNamespace, on_blue: AdminClient
) -> None:
    topic = await make_topic(on_blue, name := new_namespace())
    client = open_client(blue)
    await asyncio.to_thread(client.create_producer, str(topic), producer_name=REPLICATOR)
    move = Move(name, Strategy.REDIRECT, "", {topic: 0}, {topic: PartitionClients(1, {}, {})})
    assert [client.name for client in (await read_clients(on_blue, move))[topic]] == [REPLICATOR]
    client.close()
