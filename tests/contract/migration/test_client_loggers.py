"""What a redirect does to Python clients by the logger they were given, since one of them ends the application."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.migration import forget_migrations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.cutover.redirect import redirect_to, set_flag, store_redirect

pytestmark = pytest.mark.cluster

APPLICATION = """
import logging, sys, time, pulsar
url, topic, logger = sys.argv[1:]
logging.basicConfig(level=logging.ERROR)
loggers = {
    "none": {},
    "a file at level Info": {"logger": pulsar.FileLogger(pulsar.LoggerLevel.Info, "/dev/null")},
    "of Python": {"logger": logging.getLogger("application")},
    "the console at level Debug": {"logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Debug)},
}
producer = pulsar.Client(url, **loggers[logger]).create_producer(topic)
while True:
    producer.send(b"paid")
    print("sent", flush=True)
    time.sleep(0.05)
"""
ENDED = {"of Python": -signal.SIGABRT, "the console at level Debug": -signal.SIGABRT}
"""Logger → how its application ends; with every other one it publishes to green."""
SECONDS = 30.0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("logger", ["none", "a file at level Info", "of Python", "the console at level Debug"])
async def test_a_redirect_ends_an_application_with_a_python_logger_or_debug_log(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
    logger: str,
) -> None:
    topic = TopicName(new_namespace(), "paid")
    for admin, own in ((on_blue, "blue"), (on_green, "green")):
        await admin.put(f"/tenants/{topic.namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        await admin.put_namespace(topic.namespace, {"replication_clusters": [own]})
        await admin.create_topic(topic)
    words = [sys.executable, "-c", APPLICATION, blue.require_service_url(), str(topic), logger]
    output = tmp_path / "output"
    with output.open("w") as file, subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT) as application:
        try:
            await until(lambda: "sent" in output.read_text())
            await store_redirect(on_blue, "blue", redirect_to(green))
            await set_flag(on_blue, topic.namespace, migrated=True)
            if logger in ENDED:
                await until(lambda: application.poll() is not None)
                assert application.returncode == ENDED[logger], output.read_text()[-2000:]
                assert "Invalid BaseCommand enumeration value" in output.read_text()
                # A restart does not help: blue tells it the same.
                again = await asyncio.to_thread(subprocess.run, words, capture_output=True, timeout=SECONDS)
                assert again.returncode == ENDED[logger]
            else:
                await until_received(on_green, topic)
                assert application.poll() is None, output.read_text()[-2000:]
        finally:
            application.kill()
            await forget_migrations(on_blue)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not done():
            await asyncio.sleep(0.1)


async def until_received(admin: AdminClient, topic: TopicName) -> None:
    async with asyncio.timeout(SECONDS):
        while not (await admin.stats(topic))["msgInCounter"]:
            await asyncio.sleep(0.2)
