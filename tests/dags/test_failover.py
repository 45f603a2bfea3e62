"""Applications move to another data centre, by Airflow."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.dag_runs import report, states
from tests.support.replicated_applications import Application, make_topics, publish, replicate_both_ways

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName

pytestmark = pytest.mark.replication

Play = Callable[..., Any]


def test_applications_move_and_the_outcome_is_as_predicted(
    play: Play,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    billing = Application(TopicName(new_namespace(), "orders"), "billing")
    asyncio.run(make(blue, green, billing.topic))
    client = open_client(blue)
    consumer = billing.subscribe(client)
    publish(client, billing.topic, [f"m{number}" for number in range(12)])
    asyncio.run(wait_copied(blue, billing.topic))
    conf = {"selection": [str(billing.topic.namespace)], "auto_approve": True}
    dry = play("fail_over_applications", **conf, dry_run=True)
    assert str(dry.state) == "success"
    assert states(dry)["prepare_target"] == "skipped"
    assert "12 messages of 1 subscription not delivered on green" in report(dry)

    refused = play("fail_over_applications", **conf)
    assert states(refused)["prepare_target"] == "failed"
    assert "1 consumer of replicated subscriptions connected to blue: stop them" in report(refused)
    consumer.close()
    client.close()

    began = threading.Thread(target=start_when_awaited, args=(billing, green, records), daemon=True)
    began.start()
    moved = play("fail_over_applications", **conf)
    began.join(30)
    assert set(states(moved).values()) == {"success"}
    text = report(moved)
    assert text.startswith("# Failover blue → green: as predicted. 0 messages lost, 0 messages redelivered")
    assert text.count("12 messages of 1 subscription not delivered") == 0


@pytest.mark.long
def test_a_setting_that_cannot_be_fails_the_first_task(play: Play) -> None:
    for conf, words in (
        ({"origins": "pulsar_blue"}, "did you mean 'origin'"),
        ({"target": "pulsar_blue"}, "both lead to cluster 'blue'"),
    ):
        run = play("fail_over_applications", **conf)
        assert states(run)["read_request"] == "failed"
        assert words in report(run)


@pytest.mark.long
def test_applications_that_do_not_arrive_are_named_with_a_command(
    play: Play,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    billing = Application(TopicName(new_namespace(), "orders"), "billing")
    asyncio.run(make(blue, green, billing.topic))
    client = open_client(blue)
    billing.subscribe(client).close()
    publish(client, billing.topic, [f"m{number}" for number in range(12)])
    client.close()
    asyncio.run(wait_copied(blue, billing.topic))
    monkeypatch.setattr("pulsar_fleet.ledger.run.Run.waited_seconds", lambda *_: 3600.0)
    conf = {"selection": [str(billing.topic.namespace)], "auto_approve": True}
    late = play("fail_over_applications", **conf)
    assert states(late)["wait_arrived"] == "failed"
    text = report(late)
    assert (
        f"After 60 min: 12 messages to be acknowledged on green by 1 subscription: billing of {billing.topic}" in text
    )
    assert f"pulsar-fleet failover-outcome {late.dag_id}/{late.run_id}" in text
    words = ["failover-outcome", f"{late.dag_id}/{late.run_id}"]
    outcome = subprocess.run([sys.executable, "-m", "pulsar_fleet.cli", *words], capture_output=True, text=True)
    assert (outcome.returncode, "unfinished" in outcome.stdout) == (6, True), outcome.stderr


async def make(blue: ClusterConnection, green: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        await replicate_both_ways(on_blue, on_green, topic.namespace)
        await make_topics(on_blue, on_green, [topic], [])


async def wait_copied(blue: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(blue) as admin, asyncio.timeout(30):
        while (await admin.stats(topic, precise=False))["replication"]["green"]["replicationBacklog"]:
            await asyncio.sleep(0.1)


def start_when_awaited(application: Application, green: ClusterConnection, records: Path) -> None:
    """As an owner does: start it on green when the run waits for the applications."""
    while not list(records.rglob("failover-outcome.json")):
        time.sleep(0.2)
    client = open_client(green)
    application.drain(client)
    client.close()
