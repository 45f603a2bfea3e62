"""A comparison beside what one would do without it: a script with a dict, and datacompy on data frames."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pulsar
from tests.bench.test_verify_growth import measure
from tests.contract.verification.test_fault_matrix import (
    Message,
    altered,
    dropped,
    duplicated,
    original,
    swapped,
    write,
)
from tests.support.replication import make_alone

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process

COUNT = 200_000
DATACOMPY = "datacompy==1.1.0"
FOLDER = Path(__file__).parent
UV = Path(sys.executable).with_name("uv")
PLACES = {
    "drop": 20_000,
    "duplicate": 60_000,
    "swap": 90_000,
    "payload": 120_000,
    "property": 150_000,
    "event": 180_000,
}


def test_beside_a_script_and_datacompy(blue: ClusterConnection, green: ClusterConnection, tmp_path: Path) -> None:
    namespace = NamespaceName(f"bench-{uuid.uuid4().hex[:8]}", "beside")
    topics = {name: TopicName(NamespaceName(namespace.tenant, name), "events") for name in ("equal", "damaged")}
    asyncio.run(_fill((blue, green), topics))
    print(f"\n{COUNT:,} messages on each side, copied by a producer; seconds with the process' start")
    packages = ["--with", DATACOMPY, "--with", f"pulsar-client=={pulsar.__version__}"]
    clients = {
        "two readers and a dict": [sys.executable, FOLDER / "plain_script.py"],
        "datacompy": [UV, "run", "-q", "--no-project", *packages, "python", FOLDER / "datacompy_script.py"],
    }
    urls = [str(connection.service_url) for connection in (blue, green)]
    for name, command in clients.items():
        subprocess.run([*command, *urls, str(topics["equal"])], check=True, capture_output=True, timeout=400)  # fetches
        began = time.monotonic()
        done = subprocess.run(
            [*command, *urls, str(topics["damaged"])], check=True, capture_output=True, text=True, timeout=400
        )
        _say(name, time.monotonic() - began, set(json.loads(done.stdout)["named"]))
    began = time.monotonic()
    equal = measure(blue, green, topics["equal"].namespace, "auto", tmp_path / "request.json")
    assert equal["verdict"] == "equal"
    print(f"  pulsar-fleet, an equal copy{'':13} {time.monotonic() - began:6.1f} s  {equal['megabytes']} MB")
    began = time.monotonic()
    differing_keys = asyncio.run(_compare(blue, green, topics["damaged"].namespace))
    _say("pulsar-fleet, the damaged copy", time.monotonic() - began, differing_keys)


def _say(name: str, seconds: float, named: set[str]) -> None:
    missed = [fault for fault, place in PLACES.items() if not {f"k{place}", f"k{place + 1}"} & named]
    print(f"  {name:40} {seconds:6.1f} s  misses {', '.join(missed) or 'nothing'}")


async def _compare(blue: ClusterConnection, green: ClusterConnection, namespace: NamespaceName) -> set[str]:
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        verification = await verify_in_process(on_blue, on_green, await freeze_bounds(on_blue, on_green, [namespace]))
    return {
        difference.key
        for compared in verification.namespaces
        for topic in compared.topics
        for difference in topic.differences
    }


async def _fill(sides: tuple[ClusterConnection, ClusterConnection], topics: dict[str, TopicName]) -> None:
    messages = original(COUNT)
    for side in sides:
        async with AdminClient(side) as admin:
            for topic in topics.values():
                await make_alone(admin, topic.namespace)
        client = open_client(side)
        for name, topic in topics.items():
            whole = side is sides[0] or name == "equal"
            await asyncio.to_thread(write, client, topic, messages if whole else _damaged(messages), 100)
        client.close()


def _damaged(messages: list[Message]) -> list[Message]:
    copy = altered(messages, PLACES["event"], event=1)
    copy = altered(copy, PLACES["property"], trace="other")
    copy = altered(copy, PLACES["payload"], payload=b"other")
    return dropped(duplicated(swapped(copy, PLACES["swap"]), PLACES["duplicate"]), PLACES["drop"])
