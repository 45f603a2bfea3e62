"""Forwarding on two brokers with tokens, authorization and TLS: partitions, and the death of each broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.cursors import TYPES
from tests.support.forwarding import Application, Readers, Traffic, Watched, forwarder, make_readers
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.message_client import open_client
from pulsar_sandbox import Cluster

PARTITIONS = 4
NAMES = ["Exclusive", "Failover", "Shared", "Key_Shared"]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Cluster]:
    with start_clusters(tmp_path_factory.mktemp("wide"), clusters=("wide",), brokers=2, secure=True) as sandbox:
        yield sandbox["wide"]


@pytest.fixture
def connection(wide: Cluster) -> ClusterConnection:
    # An HTTPS connection whose handshake is cancelled while a broker starts leaves its socket open in asyncio.
    urls = wide.admin_urls
    return ClusterConnection(
        name="wide",
        admin_url=",".join([urls[0], *(url.removeprefix("http://") for url in urls[1:])]),
        service_url=wide.service_url_tls,
        tls_trust_file=wide.trust_file,
        token=wide.token(),
    )


@pytest.fixture
async def readers(connection: ClusterConnection) -> AsyncIterator[Readers]:
    client = open_client(connection)
    try:
        async with AdminClient(connection) as admin:
            yield await make_readers(admin, "deaths", client, PARTITIONS)
    finally:
        client.close()


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_forwarding_loses_and_invents_nothing_while_each_broker_dies_once(
    readers: Readers, wide: Cluster, records: Path
) -> None:
    names = dict(zip(NAMES, TYPES, strict=True))
    for name, kind in names.items():
        await readers.make_subscription(name, kind)
    applications = [
        await asyncio.to_thread(Application, readers, name, kind, cumulative=False) for name, kind in names.items()
    ]
    traffic, watched = Traffic(readers, pause=0.02, keyed=True), Watched(readers, applications)
    try:
        with forwarder(readers.admin.connection, readers, records):
            await comparing(watched, 5)
            for broker in range(2):
                await asyncio.to_thread(wide.kill, broker)
                await comparing(watched, 5)
                await asyncio.to_thread(wide.restart, broker)
                await forwarding(watched)
    finally:
        await asyncio.to_thread(traffic.close)
        await asyncio.sleep(3)
        for application in applications:
            await asyncio.to_thread(application.close)
    forwarded = await readers.forward()
    for application in applications:
        at_shadow = await readers.acknowledged(readers.shadow, application.name)
        at_owner = await readers.acknowledged(readers.source, application.name)
        # A broker that dies forgets acknowledgments that it has not stored yet: the owner's subscription or the shadow
        # topic's may lack them, and what the shadow topic's has is at the owner's.
        assert at_shadow <= at_owner <= application.acknowledged()
    assert forwarded.waiting == 0
    assert (await readers.forward()).forwarded == 0


async def forwarding(watched: Watched) -> None:
    """Compare until the forwarder has carried more than before the broker died."""
    before = watched.forwarded
    async with asyncio.timeout(180):
        while watched.forwarded < before + 100:
            await comparing(watched, 1)


async def comparing(watched: Watched, seconds: float) -> None:
    """Compare for some seconds; while a broker is dead its topics cannot be read."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        with suppress(FleetError):
            await watched.compare()
        await asyncio.sleep(0.2)
