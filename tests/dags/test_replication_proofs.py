"""Replicated namespaces are verified in every direction on schedule, and an old proof is an alert."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dag_runs import announced, report, states
from tests.support.data_centres import Traffic, make_origin, replicate, request_of

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName

pytestmark = pytest.mark.replication

Play = Callable[..., Any]
BOTH = ["pulsar_blue", "pulsar_green"]


def test_a_replicated_namespace_is_proven(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    traffic = Traffic(asyncio.run(make(blue, green, namespace)))
    traffic.start(blue.name, blue)
    try:
        proven = play("verify_replication", clusters=BOTH, selection=[str(namespace)])
    finally:
        asyncio.run(traffic.stop("blue"))
    assert {*_states(proven)} == {"success"}, report(proven)
    assert "2 proofs of replicated namespaces, all fresh" in report(proven)


@pytest.mark.long
def test_both_directions_are_proven_again_and_again_under_traffic(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    topics = asyncio.run(make(blue, green, namespace))
    traffic = Traffic(topics)
    for connection in (blue, green):
        traffic.start(connection.name, connection)
    conf = {"clusters": BOTH, "selection": [str(namespace)]}
    try:
        first = play("verify_replication", **conf)
        assert {*_states(first)} == {"success"}, report(first)
        assert {*announced(first)} == {
            f"pulsar-verified/blue/green/{namespace}",
            f"pulsar-verified/green/blue/{namespace}",
        }
        assert "2 proofs of replicated namespaces, all fresh" in report(first)
        second = play("verify_replication", **conf)
        assert {*_states(second)} == {"success"}, report(second)
    finally:
        asyncio.run(traffic.stop("blue", "green"))
    batches = second.get_task_instance("find_links").xcom_pull(task_ids="find_links")
    assert [batch["mode"] for batch in batches] == ["incremental", "incremental"]

    late = play("verify_replication", **conf, max_proof_age_hours=1e-9)
    assert str(late.state) == "failed"
    assert "of 2 proofs: too old or missing" in report(late)


def test_without_clusters_nothing_is_verified(play: Play) -> None:
    run = play("verify_replication")
    assert (str(run.state), {*_states(run)}) == ("success", {"skipped"})


def _states(run: Any) -> list[str]:
    return list(states(run).values())


async def make(
    blue: ClusterConnection, green: ClusterConnection, namespace: NamespaceName
) -> tuple[TopicName, TopicName]:
    async with AdminClient(blue) as admin:
        topics = await make_origin(admin, namespace)
    await replicate({"blue": blue, "green": green}, request_of("blue", "green", namespaces=[str(namespace)]), "begin")
    return topics
