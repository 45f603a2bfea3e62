"""What a copy needs itself, under policies that refuse it: named by a gate, refused at once, permitted by its call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pulsar
import pytest
from tests.contract.migration.test_remedies import Fleet, fleet
from tests.support.migration import publish

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, InvalidRequest
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.links.cluster_lists import copy_from
from pulsar_fleet.messages.engines.engines import EntryEngine
from pulsar_fleet.messages.ranges import EngineName, Range, TopicBounds, cut
from pulsar_fleet.migration.model import Strategy
from pulsar_sandbox.workload.live import NumberedMessage

pytestmark = pytest.mark.cluster

__all__ = ["fleet"]


@dataclass(frozen=True)
class Case:
    """A policy under which a copy fails: its finding, its setter, and what a broker's refusal of a reader names."""

    finding: str
    path: str
    value: Any
    reader: str = ""


CASES = (
    Case("no-subscription-left", "maxSubscriptionsPerTopic", 1, "maxSubscriptionsPerTopic is reached"),
    Case("exclusive-not-permitted", "subscriptionTypesEnabled", ["Shared"], "does not permit this type"),
    Case("no-consumer-left", "maxConsumersPerTopic", 1, "maxConsumersPerTopic is reached"),
    Case("replicator-not-encrypted", "encryptionRequired", True),
)


@pytest.fixture
async def loaded(fleet: Fleet) -> TopicName:
    """A partition with ten messages and one subscription; each message is an entry."""
    part = TopicName(fleet.next, "events").partitions(2)[0]
    messages = [NumberedMessage("events", "key", number, 1) for number in range(10)]
    await asyncio.to_thread(publish, fleet.blue.connection, part, messages)
    return part


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.finding)
async def test_what_a_copy_needs_is_permitted_by_the_printed_call(case: Case, fleet: Fleet, loaded: TopicName) -> None:
    with consumer_of(fleet.blue.connection, loaded, "billing"):
        await fleet.blue.post(f"/namespaces/{fleet.next.path}/{case.path}", case.value)
        finding = (await fleet.findings(strategy=Strategy.REPLICATE))[case.finding]
        assert finding.resource == str(fleet.next)
        if case.reader:
            with pytest.raises(InvalidRequest, match=case.reader):
                await read(fleet.blue, loaded)
        await fleet.execute(finding)
        assert case.finding not in await fleet.findings(strategy=Strategy.REPLICATE)
        await copy_from(fleet.blue, loaded, "green")
        assert await read(fleet.blue, loaded) == 10


async def test_a_limit_is_not_taken_as_a_cursor_that_exists(fleet: Fleet, loaded: TopicName) -> None:
    """409 is the answer to both; with the cursor deleted first, the refusal would have been a 404."""
    await fleet.blue.post(f"/namespaces/{fleet.next.path}/maxSubscriptionsPerTopic", 1)
    with pytest.raises(InvalidRequest, match="Exceed the maximum number of subscriptions"):
        await copy_from(fleet.blue, loaded, "green")
    with pytest.raises(Conflict, match="already exists"):
        await fleet.blue.put(loaded.subscription_path("billing"), "earliest")


async def read(admin: AdminClient, topic: TopicName) -> int:
    """The number of entries; each is read as a range of its own, by a reader of its own."""
    bounds = TopicBounds.whole(str(topic), await admin.internal_stats(topic))
    parts = cut(bounds, pair=0, publish_time=True, entries_per_range=1, engine=EngineName.ENTRY)
    return await asyncio.to_thread(_count, admin.connection, list(parts))


def _count(connection: ClusterConnection, parts: list[Range]) -> int:
    with EntryEngine(connection) as engine:
        return sum(len(entries) for part in parts for entries in engine.read(part))


@contextmanager
def consumer_of(connection: ClusterConnection, topic: TopicName, subscription: str) -> Iterator[None]:
    client = open_client(connection)
    try:
        client.subscribe(str(topic), subscription, consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=0)
        yield
    finally:
        client.close()
