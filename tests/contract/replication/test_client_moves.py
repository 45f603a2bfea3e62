"""The cluster that clients were moved to dies: they come back without it, and what it had comes when it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.fleets import connection, shell_of
from tests.support.kinds import StartClusters
from tests.support.live_application import LiveApplication, make_linked_topic
from tests.support.shell import Shell

from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
NAMES = ("blue", "green")
DONE = 0


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("moves"), clusters=NAMES) as sandbox:
        yield sandbox


@pytest.fixture
async def admins(sandbox: Sandbox) -> AsyncIterator[tuple[AdminClient, AdminClient]]:
    async with AdminClient(connection(sandbox["blue"])) as blue, AdminClient(connection(sandbox["green"])) as green:
        yield blue, green


@pytest.fixture
def shell(records: Path, sandbox: Sandbox) -> Shell:
    shell = shell_of(records, NAMES, {name: connection(sandbox[name]) for name in NAMES})
    shell.environment[CLIENTS_VARIABLE] = str(records / "clients")
    return shell


@pytest.mark.parametrize("options", [(), ("--exact",)], ids=["at once", "exact"])
async def test_clients_come_back_from_a_cluster_that_was_killed(
    sandbox: Sandbox, shell: Shell, admins: tuple[AdminClient, AdminClient], options: tuple[str, ...]
) -> None:
    namespace = NamespaceName(f"acme{len(options)}", "orders")
    topic = await make_linked_topic(*admins, namespace)
    documents = ConnectionDocuments.open(shell.environment[CLIENTS_VARIABLE])
    assert shell.run("clients", "set", "orders", "blue", "--new", "--yes").state == DONE
    with LiveApplication(Path(documents.folder) / "orders.json", topic).running() as live:
        await live.publish_more(200)
        words = (
            "move-clients",
            *NAMES,
            "--group",
            "orders",
            "--namespaces",
            str(namespace),
            *options,
            "--yes",
            "--json",
        )
        moved = await asyncio.to_thread(shell.run, *words)
        assert moved.state == DONE, moved.err
        await live.publish_more(200)
        sandbox["green"].kill()
        returning = asyncio.create_task(
            asyncio.to_thread(shell.run, "return-clients", moved.document["run"], *options, "--yes", "--json")
        )
        while (published := documents.published("orders")) is None or published.cluster != "blue":
            assert not returning.done(), returning.result().err
            await asyncio.sleep(0.1)
        await live.publish_more(200)
        sandbox["green"].restart()
        back = await returning
        assert back.state == DONE, back.err
        await live.publish_more(200)
        async with asyncio.timeout(60):
            while live.lost:
                await asyncio.sleep(0.5)
    assert live.lost == set()
