"""Seven procedures, run by Airflow on clusters as real fleets have them: secured, of two brokers, behind a proxy."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.applications import wait_copied
from tests.support.fleets import FLEETS, Fleet, build_redirectable
from tests.support.leaks import leaking, texts_below
from tests.support.played_dag import Played, play

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.workload import EstateSpec, build_estate

pytestmark = [pytest.mark.long, pytest.mark.fleets, pytest.mark.fleet, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=FLEETS)
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with FLEETS[request.param](tmp_path_factory.mktemp(request.param)) as fleet:
        yield fleet


def test_seven_procedures_succeed_and_no_secret_is_written(
    fleet: Fleet, records: Path, new_namespace: Callable[[], NamespaceName]
) -> None:
    live = NamespaceName(new_namespace().tenant, "orders")
    asyncio.run(build_estate(fleet.blue, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=2, history=40)))
    spark = json.dumps({"conn_type": "spark", "host": "local[2]"})
    environment = {**os.environ, **fleet.variables(), "AIRFLOW_CONN_SPARK_DEFAULT": spark}
    sides, pair = {"source": fleet.blue.name, "target": fleet.green.name}, [fleet.blue.name, fleet.green.name]
    moving = {"blue": fleet.blue.name, "green": fleet.green.name}
    outputs: list[str] = []

    def run(dag_id: str, *skipped: str, **conf: object) -> Played:
        played = play(dag_id, environment, **conf)
        outputs.append(played.output)
        others = {task: state for task, state in played.states.items() if task not in skipped}
        assert {*others.values()} == {"success"}, (played.states, played.report)
        return played

    assert run("onboard_cluster", **sides, selection=[live.tenant], auto_approve=True).report.startswith("# Equal")
    run("reconcile_policies", "repair", clusters=pair, selection=[live.tenant], mode="repair")
    asyncio.run(_limit_consumers(fleet, live, 50))
    run("reconcile_policies", clusters=pair, selection=[live.tenant], mode="repair")
    run("sync_metadata", clusters=pair, selection=[live.tenant], mode="sync")
    asyncio.run(_limit_consumers(fleet, live, 60))
    run("sync_metadata", clusters=pair, selection=[live.tenant], mode="sync")
    assert asyncio.run(_limit(fleet, live)) == 60
    run("migrate_namespaces", "plan_next_run", "start_next_wave", **moving, namespaces=[str(live)], auto_approve=True)

    # Topics that a migration has moved cannot be read on blue any more: a copy that both serve is compared.
    copied = NamespaceName(new_namespace().tenant, "orders")
    asyncio.run(build_estate(fleet.blue, EstateSpec(live=str(copied), tenants=1, namespaces_per_tenant=1, history=40)))
    replicated = {"namespaces": [str(copied)], "history": True, "auto_approve": True}
    run("replicate_namespaces", "wait_sent", "end_links", clusters=pair, **replicated)
    asyncio.run(_wait_copied(fleet, copied))
    compared = {"namespaces": [str(copied)], "subscriptions": False}
    verified = run("verify_clusters", "compare_subscriptions", **sides, **compared)
    assert verified.report.startswith("# Equal"), verified.report

    back = new_namespace()
    asyncio.run(build_redirectable(fleet.blue, back))
    run(
        "migrate_namespaces",
        "plan_next_run",
        "start_next_wave",
        **moving,
        namespaces=[str(back)],
        strategy="redirect",
        auto_approve=True,
    )
    conf = {"strategy": "redirect", "allow_removal": True, "auto_approve": True}
    run("fail_back_namespaces", **moving, namespaces=[str(back)], **conf)

    assert leaking(texts_below(records), fleet.secrets) == []
    assert leaking(((f"run {number}", text) for number, text in enumerate(outputs)), fleet.secrets) == []


async def _wait_copied(fleet: Fleet, name: NamespaceName) -> None:
    async with AdminClient(fleet.blue) as on_blue, AdminClient(fleet.green) as on_green:
        partitions = [topic for topic in await on_blue.topics(name) if topic.persistent]
        await wait_copied(on_blue, partitions, await on_green.cluster_name())


async def _limit_consumers(fleet: Fleet, name: NamespaceName, most: int) -> None:
    async with AdminClient(fleet.blue) as admin:
        await admin.post(f"/namespaces/{name.path}/maxConsumersPerTopic", most)


async def _limit(fleet: Fleet, name: NamespaceName) -> object:
    async with AdminClient(fleet.green) as admin:
        return (await admin.namespace(name) or {}).get("max_consumers_per_topic")
