"""A real broker's answers to a new producer: a topic that is open, terminated or migrated is not fenced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tests.support.event_exchange import becomes

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.drain.poll import probe_producers
from pulsar_fleet.migration.drain.state import Entrance

pytestmark = pytest.mark.cluster


async def test_an_open_a_terminated_and_a_migrated_topic_are_not_fenced(
    on_blue: AdminClient,
    blue: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[[AdminClient, NamespaceName], Awaitable[None]],
    redirect: Callable[[NamespaceName], Awaitable[None]],
) -> None:
    stays, moves = new_namespace(), new_namespace()
    topics = TopicName(stays, "open"), TopicName(stays, "terminated"), TopicName(moves, "migrated")
    for name in (stays, moves):
        await make_namespace(on_blue, name)
    for topic in topics:
        await on_blue.create_topic(topic)
        await on_blue.stats(topic)
    await on_blue.post(f"/{topics[1].path}/terminate")
    await redirect(moves)
    await becomes(partial(_is_terminated, on_blue, topics[2]), True)
    assert await probe_producers(blue, topics) == dict.fromkeys(topics, Entrance.OPEN)


async def _is_terminated(admin: AdminClient, topic: TopicName) -> bool:
    return "terminatedPosition" in await admin.internal_info(topic)
