"""Live applications move to another cluster and back, by Airflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.dag_runs import report, states
from tests.support.live_application import LiveApplication, make_linked_topic
from tests.support.replication import make_alone

from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName

pytestmark = pytest.mark.replication


@pytest.fixture
def documents(blue: ClusterConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConnectionDocuments:
    """A document that leads applications to blue."""
    monkeypatch.setenv(CLIENTS_VARIABLE, str(tmp_path))
    documents, document = ConnectionDocuments.open(), ConnectionDocument(service_url=str(blue.service_url))
    documents.publish("orders", document, cluster="blue", by="a test", why="", expected=0)
    return documents


def test_applications_move_and_come_back(
    play: Callable[..., Any],
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
    documents: ConnectionDocuments,
) -> None:
    namespace = new_namespace()
    topic = asyncio.run(make(blue, green, namespace))
    conf = {"group": "orders", "namespaces": [str(namespace)], "auto_approve": True}
    with LiveApplication(tmp_path / "orders.json", topic).running() as live:
        asyncio.run(live.publish_more(50))
        moved = play("move_clients", **conf)
        assert set(states(moved).values()) == {"success"}, report(moved)
        assert report(moved).startswith("# The clients of orders are on green.")
        asyncio.run(live.publish_more(50))
        back = play("return_clients", run=f"move_clients/{moved.run_id}", exact=True)
        assert set(states(back).values()) == {"success"}, report(back)
        asyncio.run(live.publish_more(50))
    assert live.lost == set()
    assert [one.cluster for one in documents.history("orders")] == ["blue", "green", "blue"]
    refused = play("return_clients", run="move_clients/none")
    assert (states(refused)["read_request"], "The ledger has no run" in report(refused)) == ("failed", True)


@pytest.mark.cluster
def test_a_namespace_moves_with_its_applications_and_comes_back(
    play: Callable[..., Any],
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
    documents: ConnectionDocuments,
) -> None:
    topic = TopicName(new_namespace(), "events")
    asyncio.run(make_on_one(blue, topic))
    conf = {"strategy": "replicate_then_move_clients", "group": "orders", "namespaces": [str(topic.namespace)]}
    with LiveApplication(tmp_path / "orders.json", topic).running() as live:
        asyncio.run(live.publish_more(50))
        moved = play("migrate_namespaces", **conf, auto_approve=True)
        assert "they can return" in report(moved), report(moved)
        # There is no next wave.
        assert {*states(moved).values()} <= {"success", "skipped"}, states(moved)
        asyncio.run(live.publish_more(50))
        back = play("return_clients", run=f"migrate_namespaces/{moved.run_id}")
        assert set(states(back).values()) == {"success"}, report(back)
        undone = play("abort_migration", run=f"migrate_namespaces/{moved.run_id}", auto_approve=True)
        assert set(states(undone).values()) == {"success"}, report(undone)
        asyncio.run(live.publish_more(50))
    assert live.lost == set()
    assert [one.cluster for one in documents.history("orders")] == ["blue", "green", "blue"]


async def make_on_one(blue: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(blue) as admin:
        await make_alone(admin, topic.namespace)
        await admin.create_topic(topic)


async def make(blue: ClusterConnection, green: ClusterConnection, namespace: NamespaceName) -> TopicName:
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        return await make_linked_topic(on_blue, on_green, namespace)
