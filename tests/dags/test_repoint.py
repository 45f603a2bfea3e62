"""A namespace is onboarded, moved by the owners of its applications, and verified, by Airflow; also from Pulsar 3.0."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.dags.test_runs import SIDES
from tests.support.applications import Publisher, Subscriber, wait_copied
from tests.support.dag_runs import announced, report, states

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.artefacts import REPOINT_STATE
from pulsar_fleet.migration.model import Phase
from pulsar_sandbox.workload import EstateSpec, build_estate, drain_subscription

pytestmark = pytest.mark.migration

Play = Callable[..., Any]


@pytest.mark.long
@pytest.mark.versions
@pytest.mark.timeout(420)
def test_a_run_waits_until_the_applications_were_connected_to_green(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    name = NamespaceName(new_namespace().tenant, "orders")
    spec = EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=60)
    asyncio.run(build_estate(blue, spec))
    onboarded = play("onboard_cluster", **SIDES, selection=[name.tenant], auto_approve=True)
    assert set(states(onboarded).values()) == {"success"}

    live = TopicName(name, "live")
    applications = (Subscriber(live, "billing"), Publisher(live, ["a", "b"], per_second=40))
    for application in applications:
        application.start(blue)
    owner = threading.Thread(target=connect_to, args=(blue, green, name, applications), daemon=True)
    owner.start()
    moved = play("migrate_namespaces", namespaces=[str(name)], strategy="replicate_then_repoint", auto_approve=True)
    owner.join(60)
    finished = states(moved)
    assert {finished.pop(task) for task in ("plan_next_run", "start_next_wave")} == {"skipped"}
    assert set(finished.values()) == {"success"}
    subscriber, publisher = applications
    publisher.stop()
    end = time.monotonic() + 20
    while subscriber.received.lost(publisher.sent) and time.monotonic() < end:
        time.sleep(0.2)
    assert subscriber.received.lost(publisher.sent) == set()
    subscriber.stop()
    assert subscriber.received.out_of_order() == []
    text = report(moved)
    assert "every application left blue, which refuses producers" in text
    twice = subscriber.received.twice()
    stated = f"{counted(twice, 'entry')} delivered on both clusters" if twice else "nothing delivered twice"
    assert f"* `billing` on `{live}`: {stated}" in text

    verified = play("verify_clusters", **SIDES, namespaces=[str(name)], mapping="copies", subscriptions=False)
    assert str(verified.state) == "success"
    assert announced(verified) == [f"pulsar-verified/blue/green/{name}"]
    carried = drain_subscription(green, f"persistent://{name}/events", "archive", at_least=60)
    assert len(carried) == len(set(carried)) == 60


def connect_to(
    blue: ClusterConnection,
    green: ClusterConnection,
    name: NamespaceName,
    applications: tuple[Subscriber, Publisher],
) -> None:
    """What an owner does when the run waits: consumers first, then producers, when green has everything of them."""
    ledger, files = Ledger.open(), Artefacts.open()
    while ledger.last_phase(str(name)) != Phase.REPLICATED:
        time.sleep(0.5)
    run = ledger.last_run_in(str(name), Phase.REPLICATED)
    assert run is not None
    while files.find(run, REPOINT_STATE) is None:
        time.sleep(0.5)
    for application in applications:
        application.stop()
        asyncio.run(_wait_copied(blue, application.topic))
        application.start(green)
        time.sleep(2)


async def _wait_copied(blue: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(blue) as admin:
        await wait_copied(admin, [topic], "green")
