"""Between clusters east and west no text of a migration or of its failback says blue or green."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.fleets import build_redirectable
from tests.support.kinds import StartClusters
from tests.support.shell import Said, Shell
from tests.unit.test_cluster_names_in_texts import ROLE

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox import Sandbox
from pulsar_sandbox.workload import Traffic

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DONE, ERROR, _, _, REFUSED, _ = range(6)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("named"), clusters=("east", "west")) as sandbox:
        yield sandbox


@pytest.fixture
def east(fleet: Sandbox) -> ClusterConnection:
    cluster = fleet["east"]
    return ClusterConnection(name="east", admin_url=cluster.admin_url, service_url=cluster.service_url)


@pytest.fixture
def shell(records: Path, fleet: Sandbox, east: ClusterConnection) -> Shell:
    """East by its URL, west by an Airflow connection."""
    west = {"conn_type": "pulsar", "host": fleet["west"].admin_url}
    return Shell(records, (east.admin_url, "pulsar_west"), {"AIRFLOW_CONN_PULSAR_WEST": json.dumps(west)})


async def test_a_migration_and_its_failback_name_the_clusters(
    shell: Shell, east: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    live = new_namespace()
    await build_redirectable(east, live)
    with Traffic.start(east, namespace=live, folder=shell.folder / "traffic", rate=20.0) as traffic:
        absent = await command(shell, "fail-back", live, "--yes")
        moved = await command(shell, "migrate", live, "--yes")
        early = await command(shell, "fail-back", live, "--yes")
        await asyncio.to_thread(traffic.stop)
    async with AdminClient(east) as admin, asyncio.timeout(90):
        # A broker remembers for a minute that applications were connected to it.
        while (back := await command(shell, "fail-back", live, "--allow-removal", "--yes")).state != DONE:
            assert "clients-on-blue" in back.err, back.err
            await asyncio.sleep(5)
        assert not (await admin.namespace(live) or {})["migrated"]
    assert (absent.state, moved.state, early.state) == (ERROR, DONE, REFUSED), moved.err
    assert [line for said in (absent, moved, early, back) for line in lines_with_roles(said.out + said.err)] == []
    assert [line for path in shell.folder.rglob("*.md") for line in lines_with_roles(path.read_text())] == []
    restore = f"pulsar-fleet restore {east.admin_url} --delete-inactive-topics --namespaces {live}"
    assert command_lines(moved.out) == [restore]
    assert (await asyncio.to_thread(shell.run, *restore.split()[1:], "--dry-run")).state == DONE


async def command(shell: Shell, name: str, live: NamespaceName, *more: str) -> Said:
    return await asyncio.to_thread(shell.run, name, *shell.sides, "--namespaces", live, "--strategy", "redirect", *more)


def lines_with_roles(text: str) -> list[str]:
    return [line for line in text.splitlines() if ROLE.search(line)]


def command_lines(text: str) -> list[str]:
    return re.findall(r"`(pulsar-fleet [^`]+)`", text)
