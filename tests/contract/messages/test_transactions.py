"""Topics with transactions: committed messages are compared, aborted ones are seen by nobody, an open one stops."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.kinds import StartClusters
from tests.support.replication import know_each_other, replicate, wait_linked

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, jars_for

pytestmark = [pytest.mark.versions, pytest.mark.long]

PROGRAM = Path(__file__).with_name("Transactions.java")
SETTINGS = {"transactionCoordinatorEnabled": "true"}


@pytest.fixture(scope="module")
def transactional(
    tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[ClusterConnection]:
    """A cluster with transactions."""
    folder = tmp_path_factory.mktemp("transactional")
    with start_clusters(folder, clusters=("ledgered",), settings={"ledgered": SETTINGS}) as sandbox:
        cluster = sandbox["ledgered"]
        yield ClusterConnection(name="ledgered", admin_url=cluster.admin_url, service_url=cluster.service_url)


async def test_committed_messages_are_compared_and_open_ones_are_inconclusive(
    transactional: ClusterConnection, green: ClusterConnection, tmp_path: Path
) -> None:
    name = NamespaceName(f"test-{tmp_path.name[-12:]}", "ledgered")
    committed, opened = TopicName(name, "committed"), TopicName(name, "opened")
    async with AsyncExitStack() as stack:
        on_source, on_target = [
            await stack.enter_async_context(AdminClient(connection)) for connection in (transactional, green)
        ]
        await know_each_other(on_source, on_target)
        await replicate(on_source, on_target, name)
        for topic in (committed, opened):
            for admin in (on_target, on_source):
                await admin.create_topic(topic)
        await wait_linked(on_source, (committed, opened), "green")
        await asyncio.to_thread(write, transactional, committed, opened, tmp_path)
        for engine in (EngineChoice.MESSAGE, EngineChoice.ENTRY):
            request = await freeze_bounds(on_source, on_target, [name], engine=engine)
            verification = await verify_in_process(on_source, on_target, request)
            topics: dict[str, TopicVerdict] = {
                TopicName.parse(topic.topic).local: topic
                for namespace in verification.namespaces
                for topic in namespace.topics
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
