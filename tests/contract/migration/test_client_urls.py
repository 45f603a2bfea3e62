"""Applications are redirected to the addresses that are theirs, which are not those of Airflow."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.applications import Publisher, Subscriber
from tests.support.migration import forget_migrations
from tests.support.tcp_proxy import CuttingProxy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import stored_redirect
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.procedure import Migration

pytestmark = pytest.mark.cluster

NOBODY = "pulsar://127.0.0.1:9"


@pytest.fixture
async def topic(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[[AdminClient, NamespaceName], Awaitable[None]],
) -> AsyncIterator[TopicName]:
    await forget_migrations(on_blue, on_green)
    topic = TopicName(new_namespace(), "events")
    await make_namespace(on_blue, topic.namespace)
    await on_blue.create_topic(topic)
    yield topic
    await forget_migrations(on_blue, on_green)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("moved", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "files")))


async def test_clients_follow_to_the_address_that_is_theirs(
    topic: TopicName, run: Run, blue: ClusterConnection, green: ClusterConnection, on_blue: AdminClient
) -> None:
    publisher, subscriber = Publisher(topic, ["a"], per_second=20), Subscriber(topic, "billing")
    with CuttingProxy(green.require_service_url(), []) as proxy:
        sides = Sides(blue, replace(green, client_urls=(proxy.url,)), 5.0)
        for application in (subscriber, publisher):
            application.start(blue)
        migration = Migration.of(
            {"blue": "blue", "green": "green", "namespaces": [str(topic.namespace)], "strategy": "redirect"}, sides, run
        )
        wave, _ = await migration.check_gates([topic.namespace])
        text = run.artefacts.read(wave.text).decode()
        assert f"Clients are redirected to {proxy.url}" in text
        moves = Moves.from_json(run.artefacts.read_json(wave.moves))
        await steps.prepare_green(sides, run, moves)
        await steps.freeze_blue(sides, run, moves)
        await steps.verify_copy(sides, run, moves)
        before, connections_before = find_original_settings(run), proxy.connections
        assert before is not None
        await steps.cut_over(sides, run, moves, before)
        stored = await stored_redirect(on_blue, await on_blue.cluster_name())
        assert stored is not None
        assert stored["migratedClusterUrl"]["brokerServiceUrl"] == proxy.url
        sent, end = len(publisher.sent), time.monotonic() + 30
        while len(publisher.sent) < sent + 20 and time.monotonic() < end:
            time.sleep(0.1)
        assert len(publisher.sent) >= sent + 20
        assert proxy.connections > connections_before
        for application in (publisher, subscriber):
            application.stop()
        await steps.restore_blue(sides, run, before, delete_topics=False)


async def test_an_untested_address_of_clients_is_a_blocker_with_a_waiver(
    topic: TopicName, run: Run, blue: ClusterConnection, green: ClusterConnection
) -> None:
    sides = Sides(blue, replace(green, client_urls=(NOBODY,)), 5.0)
    with pytest.raises(PreconditionFailed, match=r"redirect-unreachable.*|127\.0\.0\.1:9") as refused:
        await steps.check_gates(sides, run, [topic.namespace], Strategy.REDIRECT, expected=Expectations())
    assert f"brokerServiceUrl {NOBODY}" in str(refused.value)
    assert "client_urls" in str(refused.value)
