"""The provider without the packages of the extras: a fresh interpreter that cannot import them uses a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName

EXTRAS = ("matplotlib", "pandas", "psycopg", "pyspark")
SCRIPT = """
import sys
topic, *extras = sys.argv[1:]
sys.modules.update(dict.fromkeys(extras))
from pulsar_fleet.airflow import PulsarBacklogSensor, PulsarHook, PulsarSubscriptionSensor
from pulsar_fleet.messages.clients.stream import Subscription

hook = PulsarHook()
hook.publish(topic, ["1", "2"])
with hook.reader(topic) as messages:
    assert [message.content for message in messages] == [b"1", b"2"]
received = []
subscription = Subscription(topic=topic, name="warehouse", initial_position="earliest")
hook.consume(subscription, received.extend, most_messages=2, batch_size=2, wait_seconds=5)
assert len(received) == 2
names = {"topic": topic, "subscription": "warehouse"}
assert PulsarSubscriptionSensor(task_id="exists", **names).poke({})
assert PulsarBacklogSensor(task_id="drained", at_most=0, **names).poke({})
assert hook.test_connection()[0]
"""


async def test_the_provider_publishes_reads_consumes_and_waits(
    blue: ClusterConnection,
    on_blue: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[..., object],
) -> None:
    namespace = new_namespace()
    await make_namespace(on_blue, namespace)
    document = {"conn_type": "pulsar", "host": blue.admin_url, "extra": {"service_url": blue.service_url}}
    environment = {**os.environ, "AIRFLOW_CONN_PULSAR_DEFAULT": json.dumps(document)}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, f"persistent://{namespace}/orders", *EXTRAS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
