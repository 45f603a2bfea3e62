"""`reconcile_policies`, run by Airflow itself against two real clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.dag_runs import announced, report, states
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, held, make_namespaces, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.settings.reconciliation import RECONCILE

pytestmark = pytest.mark.policy_sync

Play = Callable[..., Any]
BOTH = ["pulsar_blue", "pulsar_green"]


@pytest.fixture
def shared(
    blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> NamespaceName:
    """The first of two namespaces that both clusters have."""
    name = new_namespace()

    async def make() -> None:
        async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
            await make_namespaces([name, NamespaceName(name.tenant, "payments")], on_blue, on_green)

    asyncio.run(make())
    return name


def change(connection: ClusterConnection, name: NamespaceName, path: str, value: int) -> None:
    async def write() -> None:
        async with AdminClient(connection) as admin:
            await set_policy(admin, name, path, value)

    asyncio.run(write())


def values(connection: ClusterConnection, name: NamespaceName) -> JsonObject:
    async def read() -> JsonObject:
        async with AdminClient(connection) as admin:
            return await held(admin, name, (MAX_PRODUCERS[1], MAX_CONSUMERS[1]))

    return asyncio.run(read())


def test_drift_is_reported_then_repaired_and_then_nothing_is_left(
    play: Play, shared: NamespaceName, blue: ClusterConnection, green: ClusterConnection
) -> None:
    conf = {"clusters": BOTH, "selection": [shared.tenant]}
    equal = play("reconcile_policies", **conf, mode="repair")
    assert states(equal) == {
        "read_request": "success",
        "find_drift": "success",
        "repair": "skipped",
        "write_report": "success",
    }
    change(blue, shared, MAX_PRODUCERS[0], 5)
    change(green, shared, MAX_PRODUCERS[0], 6)
    change(green, shared, MAX_CONSUMERS[0], 7)
    looked = play("reconcile_policies", **conf, fail_on_drift=True)
    assert (states(looked)["repair"], states(looked)["write_report"]) == ("skipped", "failed")
    assert report(looked).startswith("# DRIFT between blue, green: 2 fields of 1 resource differ, 1 conflict")
    assert values(green, shared)[MAX_PRODUCERS[1]] == 6

    repaired = play("reconcile_policies", **conf, mode="repair")
    assert set(states(repaired).values()) == {"success"}
    assert report(repaired).startswith("# Repaired: 2 changes on blue, green")
    assert announced(repaired) == ["pulsar-policies/blue", "pulsar-policies/green"]
    expected = {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: 7}
    assert (values(blue, shared), values(green, shared)) == (expected, expected)


@pytest.mark.long
def test_above_the_threshold_a_spark_job_finds_the_drift_for_the_repair(
    play: Play,
    shared: NamespaceName,
    blue: ClusterConnection,
    green: ClusterConnection,
) -> None:
    conf = {"clusters": BOTH, "selection": [shared.tenant], "mode": "repair"}
    play("reconcile_policies", **conf)
    change(blue, shared, MAX_PRODUCERS[0], 5)
    change(green, shared, MAX_CONSUMERS[0], 7)
    repaired = play("reconcile_policies", **conf, compare_with_spark_above=1)
    assert set(states(repaired).values()) == {"success"}
    assert report(repaired).startswith("# Repaired: 2 changes on blue, green")
    assert "Compared in Spark: 1 resource divergent between clusters." in report(repaired)
    expected = {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: 7}
    assert (values(blue, shared), values(green, shared)) == (expected, expected)


@pytest.mark.long
def test_above_the_threshold_a_missing_spark_connection_is_refused(
    play: Play,
    shared: NamespaceName,
    blue: ClusterConnection,
    green: ClusterConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    change(blue, shared, MAX_PRODUCERS[0], 5)
    conf = {"clusters": BOTH, "selection": [shared.tenant], "mode": "repair", "compare_with_spark_above": 1}
    refused = play("reconcile_policies", **conf)
    assert (states(refused)["find_drift"], states(refused)["repair"]) == ("failed", "upstream_failed")
    assert report(refused).startswith("# Failed in find_drift: Spark connection 'spark_default' does not exist")
    assert "Nothing was compared, nothing has been changed." in report(refused)
    assert values(green, shared)[MAX_PRODUCERS[1]] is None


@pytest.mark.parametrize(
    "conf",
    [
        {"mod": "repair"},
        {"clusters": ["pulsar_blue", "pulsar_gren"]},
        {"choose": ["x=green"], "mode": "dry_run"},
    ],
    ids=lambda conf: ",".join(conf),
)
def test_a_configuration_that_cannot_be_meant_fails_in_the_first_task(play: Play, conf: dict[str, Any]) -> None:
    task_states = states(play("reconcile_policies", **conf))
    assert (task_states["read_request"], task_states["find_drift"], task_states["repair"]) == (
        "failed",
        "upstream_failed",
        "upstream_failed",
    )


def test_the_environment_says_what_scheduled_runs_do() -> None:
    environment = {RECONCILE.variable: '{"schedule": "0 * * * *", "mode": "repair"}'}
    settings = RECONCILE.settings(environment)
    assert (RECONCILE.schedule(environment), settings["mode"].default) == ("0 * * * *", "repair")
    assert (RECONCILE.schedule({}), RECONCILE.settings({})["mode"].default) == ("*/5 * * * *", "report")
    with pytest.raises(InvalidRequest, match="did you mean 'mode'"):
        RECONCILE.settings({RECONCILE.variable: '{"mod": "repair"}'})
    with pytest.raises(InvalidRequest, match="is not valid JSON"):
        RECONCILE.schedule({RECONCILE.variable: "{"})
