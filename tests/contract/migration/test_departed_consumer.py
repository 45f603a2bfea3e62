"""A consumer that leaves between the gates and the cut-over: its backlog is named, and the advice brings it home."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pulsar
import pytest
from tests.support.migration import LATE, UNREAD, make, migration

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.drain.monitor import DrainStatus
from pulsar_fleet.migration.drain.state import Incident, IncidentKind
from pulsar_fleet.migration.subscriptions.checkpoint import store_gate_clients
from pulsar_sandbox.workload import drain_subscription


@pytest.mark.long
async def test_its_backlog_is_named_with_its_last_owner_and_read_as_advised(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    name = new_namespace()
    await make(blue, green, name)
    moving = migration(blue, green, name, tmp_path)
    topic = moving.topic(LATE)

    client = pulsar.Client(blue.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        client.subscribe(str(topic), LATE, consumer_name="late-1")
        (read,) = (await stats_of(on_blue, [topic])).values()
        assert isinstance(read, TopicStats)
        store_gate_clients(moving.run, str(name), {topic: read.clients})
    finally:
        client.close()
    await moving.freeze_blue()
    await moving.switch()

    incident = await first_incident(moving.monitor_drain)
    assert incident.subject == f"{topic} {LATE}"
    assert f"{UNREAD} unread entries left on blue" in incident.sentence
    assert 'The last one was consumer "late-1" (127.0.0.1:' in incident.sentence

    assert len(await asyncio.to_thread(drain_subscription, blue, topic, LATE, at_least=UNREAD)) == UNREAD
    assert (await moving.monitor_until_drained()).is_done
    assert [record["outcome"] for record in moving.monitored()["incidents"].values()] == ["over"]
    await moving.restore_blue()


async def first_incident(poll: Callable[[], Awaitable[DrainStatus]]) -> Incident:
    """Poll until a subscription without consumers is reported."""
    async with asyncio.timeout(60):
        while True:
            status = await poll()
            for incident in status.incidents:
                if incident.kind is IncidentKind.NO_CONSUMERS:
                    return incident
            await asyncio.sleep(1)
