"""A namespace is replicated, and a cluster leaves again, by Airflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dag_runs import report, states
from tests.support.data_centres import make_origin

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName

pytestmark = pytest.mark.cluster

Play = Callable[..., Any]
BOTH = {"clusters": ["pulsar_blue", "pulsar_green"]}


def test_a_namespace_is_replicated_and_a_cluster_leaves(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    asyncio.run(make(blue, namespace))
    conf = {**BOTH, "namespaces": [str(namespace)]}
    dry = play("replicate_namespaces", **conf, dry_run=True)
    assert str(dry.state) == "success"
    assert states(dry)["apply_contents"] == "skipped"
    assert "Nothing has been changed. 1 namespace" in report(dry)
    assert f'green: POST /admin/v2/namespaces/{namespace.path}/replication ["blue", "green"]' in report(dry)

    done = play("replicate_namespaces", **conf, auto_approve=True)
    assert {task: state for task, state in states(done).items() if state != "success"} == {
        "wait_sent": "skipped",
        "end_links": "skipped",
    }
    text = report(done)
    assert "8 of 8 links are connected and send." in text
    assert f"pulsar-fleet undo replicate_namespaces/{done.run_id}/starts/green" in text

    leaving = {"clusters": ["pulsar_blue"], "leaving": ["pulsar_green"], "namespaces": [str(namespace)]}
    departure = play("replicate_namespaces", **leaving, auto_approve=True)
    assert set(states(departure).values()) == {"success"}
    assert "The links of clusters that left have ended." in report(departure)
    for connection in (blue, green):
        assert asyncio.run(lists(connection, namespace)) == [connection.name]


def test_a_setting_that_cannot_be_fails_the_first_task(play: Play) -> None:
    for conf, words in (({"cluster": []}, "did you mean 'clusters'"), ({"leaving": ["pulsar_blue"]}, "named twice")):
        run = play("replicate_namespaces", **BOTH, **conf)
        assert str(run.state) == "failed"
        assert states(run)["read_request"] == "failed"
        assert words in report(run)


async def make(connection: ClusterConnection, namespace: NamespaceName) -> None:
    async with AdminClient(connection) as admin:
        await make_origin(admin, namespace)


async def lists(connection: ClusterConnection, namespace: NamespaceName) -> list[str]:
    async with AdminClient(connection) as admin:
        return list((await admin.namespace(namespace) or {})["replication_clusters"])
