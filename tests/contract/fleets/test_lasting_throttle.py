"""A cut-over from brokers of 4.0, where producers wait on after the throttle was lifted: by the size of entries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from tests.support.fleets import connection
from tests.support.kinds import StartClusters
from tests.support.migration import make, migration

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox import Sandbox
from pulsar_sandbox.workload import Traffic
from pulsar_sandbox.workload.live import AUDIT, CONSUMED, EVENTS, EVENTS_PARTITIONS

RATE = 20.0
SOON_SECONDS = 25
"""Less than the keep-alive time of a client, after which it closes a connection without answers."""
LARGE = b"x" * 300_000


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """An old cluster of 4.0, a new one of 4.2."""
    versions = {"blue": "4.0.7", "green": "4.2.4"}
    with start_clusters(tmp_path_factory.mktemp("sandbox"), version=versions) as sandbox:
        yield sandbox


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("uneven", [False, True], ids=["entries of one size", "some far larger"])
async def test_producers_go_on_soon_and_no_small_entry_passes_the_throttle(
    fleet: Sandbox,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    uneven: bool,
) -> None:
    blue, green = connection(fleet["blue"]), connection(fleet["green"])
    name = new_namespace()
    await make(blue, green, name)
    if uneven:
        await store_large_entries(blue, name)
    moving = migration(blue, green, name, tmp_path)
    with Traffic.start(blue, namespace=name, folder=tmp_path / "traffic", rate=RATE) as traffic:
        await asyncio.sleep(3)
        await moving.freeze_blue()
        with caplog.at_level(logging.INFO):
            await moving.switch()
        await until_published(green, topics_with_traffic(name))
        tally = await asyncio.to_thread(traffic.stop)
    await moving.restore_blue()
    assert (tally.finished, tally.lost, tally.order_breaks) == (True, 0, 0), tally.text()
    assert ("becomes stricter" in caplog.text) is uneven
    if not uneven:
        assert tally.publish_pauses[0][1].milliseconds < SOON_SECONDS * 1_000, tally.text()


def topics_with_traffic(name: NamespaceName) -> tuple[TopicName, ...]:
    return (*TopicName(name, EVENTS).partitions(EVENTS_PARTITIONS), TopicName(name, AUDIT))


async def until_published(cluster: ClusterConnection, topics: tuple[TopicName, ...]) -> None:
    async with AdminClient(cluster) as admin, asyncio.timeout(120):
        for topic in topics:
            while not (await admin.stats(topic))["msgInCounter"]:
                await asyncio.sleep(0.5)


async def store_large_entries(blue: ClusterConnection, name: NamespaceName) -> None:
    """Entries that every subscription has acknowledged, by which the mean size of a topic's entries is far larger."""
    topics = topics_with_traffic(name)
    await asyncio.to_thread(publish_large, blue, topics)
    async with AdminClient(blue) as admin:
        for topic in topics:
            for subscription in CONSUMED:
                await admin.post(f"/{topic.path}/subscription/{subscription}/skip_all")


def publish_large(blue: ClusterConnection, topics: tuple[TopicName, ...]) -> None:
    client: pulsar.Client = open_client(blue)
    try:
        for topic in topics:
            producer = client.create_producer(str(topic))
            for _ in range(3):
                producer.send(LARGE)
    finally:
        client.close()
