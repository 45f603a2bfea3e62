"""The comparison on a Spark cluster of its own: a master and two workers as processes, as on separate machines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.dags.test_runs import FORGOTTEN, SIDES, Play, make_pair
from tests.support.dag_runs import report, states
from tests.support.spark_cluster import SparkCluster, standalone_cluster

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.verification.messages.verdict import Verdict, Verification
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import FOLDER, REQUEST, VERDICT, verify_in_process
from pulsar_sandbox.workload import EstateSpec, build_estate, drain_subscription

pytestmark = [pytest.mark.fleet, pytest.mark.verification]


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A cluster that ends with the test, however that ends."""
    with standalone_cluster(tmp_path) as cluster:
        yield cluster


@pytest.mark.long
def test_a_job_on_a_cluster_gives_the_verdict_of_this_process(
    play: Play,
    spark_cluster: SparkCluster,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = new_namespace()
    make_pair(TopicName(name, "events"), blue, green, leave_out=FORGOTTEN)
    _submit_to(spark_cluster, monkeypatch)
    run = play("verify_clusters", **SIDES, namespaces=[str(name)])
    folder = Path(str(Artefacts.open().folder(f"{run.dag_id}/{run.run_id}")))
    request = VerifyRequest.from_bytes((folder / FOLDER / REQUEST).read_bytes())

    async def here() -> Verification:
        async with AdminClient(blue) as source, AdminClient(green) as target:
            return await verify_in_process(source, target, request)

    on_cluster = Verification.from_bytes((folder / FOLDER / VERDICT).read_bytes())
    assert on_cluster == asyncio.run(here())
    assert on_cluster.verdict is Verdict.DIFFERENT
    assert [(app["name"], app["state"]) for app in spark_cluster.state()["completedapps"]] == [
        ("verify-messages", "FINISHED")
    ]


@pytest.mark.long
def test_a_migration_proves_its_copy_by_jobs_on_a_cluster(
    play: Play,
    spark_cluster: SparkCluster,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = NamespaceName(new_namespace().tenant, "orders")
    asyncio.run(build_estate(blue, EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=60)))
    onboarded = play("onboard_cluster", **SIDES, selection=[name.tenant], auto_approve=True)
    assert set(states(onboarded).values()) == {"success"}
    _submit_to(spark_cluster, monkeypatch)
    moved = play(
        "migrate_namespaces",
        namespaces=[str(name)],
        strategy="replicate_then_switch",
        spark_above_entries=0,
        auto_approve=True,
    )
    finished = states(moved)
    assert {finished.pop(task) for task in ("plan_next_run", "start_next_wave")} == {"skipped"}
    assert set(finished.values()) == {"success"}, report(moved)
    # Nothing was published after the first proof, so the second one has nothing to read.
    assert [(app["name"], app["state"]) for app in spark_cluster.state()["completedapps"]] == [
        ("verify-messages", "FINISHED")
    ]
    carried = drain_subscription(green, f"persistent://{name}/events", "archive", at_least=60)
    assert len(carried) == len(set(carried)) == 60


def _submit_to(cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the connection of Airflow's operators name the cluster."""
    master = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": cluster.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(master))
