"""Brokers that are reached from here at the addresses of one of their advertised listeners only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pytest
from tests.support.brokers import topic_served_by
from tests.support.fleets import connection
from tests.support.kinds import StartClusters
from tests.support.tcp_proxy import CuttingProxy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.messages.engines.engines import EntryEngine
from pulsar_fleet.messages.protocol.connection import service_addresses
from pulsar_fleet.messages.ranges import TopicBounds, cut

pytestmark = pytest.mark.long  # Two brokers of its own, with listeners.

MESSAGES = 20


@dataclass(frozen=True)
class Outside:
    """A cluster with two listeners; the addresses of `outside` are those of proxies."""

    connection: ClusterConnection
    brokers: Sequence[str]
    proxies: Sequence[CuttingProxy]


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Outside]:
    # A single broker is a standalone one, which leads its clients through its service URL all the same.
    with (
        start_clusters(tmp_path_factory.mktemp("listeners"), clusters=("blue",), brokers=2) as sandbox,
        ExitStack() as stack,
    ):
        reached, proxies = connection(sandbox["blue"]), []
        for number, address in enumerate(service_addresses(reached.require_service_url())):
            proxies.append(stack.enter_context(CuttingProxy(str(address), [])))
            # An advertised address may not be set beside listeners; without it brokers list each other as localhost.
            settings = {
                "advertisedAddress": "",
                "bindAddress": "0.0.0.0",
                "advertisedListeners": f"inside:{address},outside:{proxies[-1].url}",
                "internalListenerName": "inside",
            }
            sandbox["blue"].restart(number, settings=settings)
        brokers = [f"localhost:{urlsplit(url).port}" for url in sandbox["blue"].admin_urls]
        yield Outside(replace(reached, listener_name="outside"), brokers, proxies)


@pytest.mark.parametrize("broker", [0, 1])
async def test_messages_are_written_and_read_at_the_addresses_of_the_listener(outside: Outside, broker: int) -> None:
    reached = outside.connection
    async with AdminClient(reached) as admin:
        topic = await topic_served_by(admin, outside.brokers[broker])
        await admin.create_subscription(topic, "keeps-everything")
        before = outside.proxies[broker].connections
        client = open_client(reached)
        producer = client.create_producer(str(topic), batching_enabled=False)
        for number in range(MESSAGES):
            producer.send(b"%d" % number)
        client.close()
        assert outside.proxies[broker].connections > before
        (whole,) = cut(TopicBounds.whole(str(topic), await admin.internal_stats(topic)), pair=0, publish_time=True)
    for listener, connects in (("outside", True), (None, False)):
        before = outside.proxies[broker].connections
        with EntryEngine(replace(reached, listener_name=listener)) as engine:
            assert sum(map(len, engine.read(whole))) == MESSAGES
        assert (outside.proxies[broker].connections > before) is connects


async def test_a_listener_that_no_broker_has_is_named(outside: Outside) -> None:
    async with AdminClient(outside.connection) as admin:
        topic = await topic_served_by(admin, outside.brokers[0])
        await admin.create_subscription(topic, "keeps-everything")
        client = open_client(outside.connection)
        client.create_producer(str(topic)).send(b"0")
        client.close()
        (whole,) = cut(TopicBounds.whole(str(topic), await admin.internal_stats(topic)), pair=0, publish_time=True)
    with (
        EntryEngine(replace(outside.connection, listener_name="nowhere")) as engine,
        pytest.raises(FleetError) as caught,
    ):
        list(engine.read(whole))
    assert "nowhere" in str(caught.value)
