"""The trigger that waits for ending links, on a real link that lags: it holds no thread, and fires when it is empty."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.data_centres import make_lagging, plan, request_of

from pulsar_fleet.airflow.sensors.step import open_look
from pulsar_fleet.airflow.triggers.waiting import WaitTrigger
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.procedures import runner
from pulsar_fleet.procedures.procedure import Checked, Session
from pulsar_fleet.procedures.replication import REPLICATION, checked


@pytest.fixture
def connections(
    blue: ClusterConnection, green: ClusterConnection, records: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, ClusterConnection]:
    """Both clusters, which Airflow knows by their names too."""
    for cluster in (blue, green):
        document = {"conn_type": "pulsar", "host": cluster.admin_url, "extra": {"service_url": cluster.service_url}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{cluster.name.upper()}", json.dumps(document))
    return {"blue": blue, "green": green}


@pytest.mark.long
async def test_a_link_that_lags_is_waited_for_without_a_thread(
    connections: dict[str, ClusterConnection],
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    namespace = new_namespace()
    events = await make_lagging(connections, on_blue, on_green, namespace)
    done = await plan(connections, request_of("blue", leaving=["green"], namespaces=[str(namespace)]), "leave")
    conf = {"clusters": ["blue"], "receive_only": [], "leaving": ["green"], "dry_run": False}

    async def check(session: Session) -> Checked:
        return checked(session, done.planned)

    await runner.check(replace(REPLICATION, check=check), Session(conf, done.run, {}))
    arguments = {
        "work": "pulsar_fleet.procedures.replication:wait_sent",
        "connections": REPLICATION.connections(conf),
        "conf": conf,
        "run_id": done.run.id,
        "batch": {},
    }
    trigger = WaitTrigger(look=open_look, arguments=arguments, poll_seconds=1, until=time.time() + 600, end=9.0)
    fired = asyncio.ensure_future(anext(trigger.run()))
    await asyncio.sleep(2)
    threads = threading.active_count()
    await asyncio.sleep(5)
    assert (fired.done(), threading.active_count()) == (False, threads)
    for partition in events.partitions(3):
        await on_blue.post(f"/{partition.path}/subscription/pulsar.repl.green/skip_all")
    async with asyncio.timeout(60):
        assert (await fired).payload == {"status": "done", "message": "", "end": 9.0}
