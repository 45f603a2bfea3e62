"""`watch_replication`, run by Airflow itself on two clusters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dag_runs import announced, report, states
from tests.support.replication import know_each_other

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.settings.replication import WATCH_REPLICATION

pytestmark = pytest.mark.replication

Play = Callable[..., Any]
CLUSTERS = ["pulsar_blue", "pulsar_green"]
READ = {"read_request": "success", "examine_replicators": "success"}
FOREIGN = "own-cluster-missing"


async def _make(blue: ClusterConnection, green: ClusterConnection, name: NamespaceName) -> None:
    """A namespace that green refuses, because its list there has blue only."""
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        await know_each_other(on_blue, on_green)
        for admin in (on_blue, on_green):
            await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "green"]})
            await admin.put_namespace(name, {"replication_clusters": ["blue"]})
        await on_blue.create_topic(TopicName(name, "events"))
        await on_blue.post(f"/namespaces/{name.path}/replication", ["blue", "green"])


def test_a_fault_fails_the_run_and_its_beginning_is_announced_once(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    name = new_namespace()
    asyncio.run(_make(blue, green, name))
    conf = {"clusters": CLUSTERS, "selection": [str(name)], "connect_seconds": 0}
    first = play("watch_replication", **conf)
    assert states(first) == {**READ, "send_remedies": "skipped", "write_report": "failed"}
    assert announced(first) == ["pulsar-replication/blue"]
    assert FOREIGN in report(first)
    second = play("watch_replication", fail_on_fault=False, **conf)
    assert states(second) == {**READ, "send_remedies": "skipped", "write_report": "success"}
    assert announced(second) == []


@pytest.mark.long
def test_a_remedy_that_the_configuration_names_heals_and_is_announced(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    name = new_namespace()
    asyncio.run(_make(blue, green, name))
    conf = {"clusters": CLUSTERS, "selection": [str(name)]}
    run = play("watch_replication", remedies=[FOREIGN], **conf)
    assert states(run) == {**READ, "send_remedies": "success", "write_report": "success"}
    after = play("watch_replication", **conf)
    assert states(after) == {**READ, "send_remedies": "skipped", "write_report": "success"}
    assert announced(after) == ["pulsar-replication/blue"]


def test_without_a_cluster_the_run_is_skipped(play: Play) -> None:
    assert set(states(play("watch_replication")).values()) == {"skipped"}


def test_a_remedy_for_a_person_is_refused_before_anything_is_read(play: Play) -> None:
    run = play("watch_replication", clusters=CLUSTERS, remedies=["partitions-differ"])
    assert states(run)["read_request"] == "failed"


def test_the_environment_says_which_clusters_are_watched_and_when() -> None:
    environment = {WATCH_REPLICATION.variable: json.dumps({"schedule": None, "clusters": CLUSTERS})}
    assert WATCH_REPLICATION.schedule(environment) is None
    assert WATCH_REPLICATION.settings(environment)["clusters"].default == CLUSTERS
