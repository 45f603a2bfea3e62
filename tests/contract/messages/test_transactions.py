"""Topics with transactions: committed messages are compared, aborted ones are seen by nobody, an open one stops."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.replication import know_each_other, replicate, wait_linked

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process
from pulsar_sandbox import Sandbox
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, jars_for

PROGRAM = Path(__file__).with_name("Transactions.java")
SETTINGS = {"transactionCoordinatorEnabled": "true"}


@pytest.fixture(scope="module")
def transactional(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterConnection]:
    """A cluster with transactions."""
    folder = tmp_path_factory.mktemp("transactional")
    with Sandbox.start(folder, clusters=("ledgered",), settings={"ledgered": SETTINGS}) as sandbox:
        cluster = sandbox["ledgered"]
        yield ClusterConnection(name="ledgered", admin_url=cluster.admin_url, service_url=cluster.service_url)


async def test_committed_messages_are_compared_and_an_open_transaction_is_inconclusive(
    transactional: ClusterConnection, green: ClusterConnection, tmp_path: Path
) -> None:
    name = NamespaceName(f"test-{tmp_path.name[-12:]}", "ledgered")
    committed, opened = TopicName(name, "committed"), TopicName(name, "opened")
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(AdminClient(each)) for each in (transactional, green)]
        await know_each_other(here, there)
        await replicate(here, there, name)
        for topic in (committed, opened):
            for admin in (there, here):
                await admin.create_topic(topic)
        await wait_linked(here, (committed, opened), "green")
        await asyncio.to_thread(write, transactional, committed, opened, tmp_path)
        for engine in (EngineChoice.MESSAGE, EngineChoice.ENTRY):
            request = await freeze_bounds(here, there, [name], engine=engine)
            found = await verify_in_process(here, there, request)
            topics: dict[str, TopicVerdict] = {
                TopicName.parse(each.topic).local: each for one in found.namespaces for each in one.topics
            }
            # 10 plain ones, 3 committed transactions of 4, 2 aborted ones of 4.
            assert (topics["committed"].verdict, topics["committed"].source_messages) == (Verdict.EQUAL, 10 + 3 * 4)
            assert topics["opened"].verdict is Verdict.INCONCLUSIVE
            assert "a transaction is open on ledgered" in topics["opened"].reason


def write(connection: ClusterConnection, committed: TopicName, opened: TopicName, folder: Path) -> None:
    """With the Java client: pulsar-client for Python has no transactions."""
    path = f"{jars_for(DEFAULT_VERSION)}/*:{folder}"
    subprocess.run(["javac", "-cp", path, "-d", folder, PROGRAM], check=True, timeout=60)
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, PROGRAM.stem, str(connection.service_url)]
    done = subprocess.run(
        [*command, str(committed), str(opened)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
