"""Subscriptions that a redirect needs on the other cluster: on the same partitions, with the same properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.migration import EVENTS, LATE, make, migration

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.prepare.target import prepare

NewNamespace = Callable[[], NamespaceName]
SELECTOR = {"selector": "a = 1"}


async def properties_of(admin: AdminClient, topic: TopicName) -> JsonObject:
    """Subscription of a topic or partition → its properties."""
    subscriptions = (await admin.stats(topic))["subscriptions"]
    return {name: document["subscriptionProperties"] for name, document in subscriptions.items()}


@pytest.mark.cluster
async def test_a_redirect_and_its_failback_find_the_subscriptions_as_they_were(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    tmp_path: Path,
) -> None:
    name = new_namespace()
    await make(blue, green, name)
    events, late = TopicName(name, EVENTS), TopicName(name, LATE)
    await on_blue.put(f"{late.subscription_path(LATE)}/properties", SELECTOR)
    await on_blue.create_subscription(events.partition(1), "job")
    await on_blue.put(f"{events.partition(1).subscription_path('job')}/properties", SELECTOR)
    moving = migration(blue, green, name, tmp_path)
    await prepare(moving.sides, moving.run, moving.moves)
    for topic in (events.partition(0), events.partition(1), late):
        assert await properties_of(on_green, topic) == await properties_of(on_blue, topic)
    assert (await properties_of(on_green, events.partition(1)))["job"] == SELECTOR

    await on_green.create_subscription(events.partition(0), "written on green")
    path = events.partition(0).subscription_path("written on green")
    await on_green.put(f"{path}/properties", {"team": "billing"})
    run = replace(moving.run, id="returned")
    await prepare(Sides(green, blue, 5.0), run, replace(moving.moves, blue="green", green="blue"))
    for topic in (events.partition(0), events.partition(1), late):
        assert await properties_of(on_blue, topic) == await properties_of(on_green, topic)
    again = await prepare(Sides(green, blue, 5.0), run, replace(moving.moves, blue="green", green="blue"))
    assert again["changes"] == 0
