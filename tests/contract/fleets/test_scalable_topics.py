"""A namespace of Pulsar 5.0 with scalable topics: each step names them, and none moves or loses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pulsar
import pytest
from tests.support.fleets import Fleet, connection
from tests.support.kinds import StartClusters
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.cleanup import read_leftovers
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Move, Strategy
from pulsar_fleet.preflight.waivers import Waiver
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
VERSIONS = {"blue": "5.0.1", "green": "4.2.4"}
DONE, DIFFERENT, INCONCLUSIVE = 0, 3, 6


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """An old cluster of 5.0, which has scalable topics, and a new one of 4.2."""
    with start_clusters(tmp_path_factory.mktemp("sandbox"), version=VERSIONS) as sandbox:
        yield sandbox


@dataclass(frozen=True)
class Held:
    """A namespace of blue with a topic `live` and two scalable topics; a segment of one of them is loaded."""

    fleet: Fleet
    blue: AdminClient
    name: NamespaceName

    @property
    def topics(self) -> tuple[str, str]:
        return f"topic://{self.name}/audit", f"topic://{self.name}/events"

    @property
    def live(self) -> TopicName:
        return TopicName(self.name, "live")

    async def listed(self) -> list[str]:
        return sorted(await self.blue.get(f"/scalable/{self.name.path}"))

    def shell(self, folder: Path) -> Shell:
        return self.fleet.shell(folder)


@pytest.fixture
async def held(two_versions: Sandbox, new_namespace: Callable[[], NamespaceName]) -> AsyncIterator[Held]:
    sandbox = two_versions
    fleet = Fleet(sandbox, connection(sandbox["blue"]), connection(sandbox["green"]))
    async with AdminClient(fleet.blue) as blue:
        held = Held(fleet, blue, new_namespace())
        await blue.put(f"/tenants/{held.name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
        await blue.put_namespace(held.name, {"replication_clusters": ["blue"]})
        await blue.create_topic(held.live)
        for local in ("audit", "events"):
            await blue.put(f"/scalable/{held.name.path}/{local}", numInitialSegments=1)
        await blue.put(f"/scalable/{held.name.path}/events/subscriptions/billing")
        assert await blue.get(f"/segments/{held.name.path}/events/0000-ffff-0/subscription/billing/backlog") == 0
        yield held


def publish(topic: TopicName, *services: str) -> None:
    """The same message on each cluster."""
    for service in services:
        client = pulsar.Client(service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.create_producer(str(topic), "checkout").send(b"1", partition_key="k")
        client.close()


async def test_the_commands_name_them_and_so_does_the_verification(held: Held, tmp_path: Path) -> None:
    shell, (audit, events) = held.shell(tmp_path), held.topics
    pair = (*shell.sides, "--select", held.name)
    snapshot, checked, planned, compared = shell.at_once(
        ("snapshot", shell.sides[0], "--select", held.name),
        ("check", *pair),
        ("plan", *pair),
        ("diff", *pair),
    )
    assert (snapshot.state, checked.state, compared.state) == (DONE, DONE, DIFFERENT), snapshot.err + compared.err
    assert f"copied by no plan: 2 scalable topics: {audit}, {events}" in snapshot.out
    assert f"2 scalable topics on blue: {audit}, {events}" in checked.out
    assert f"left alone: 2 scalable topics ({audit}, {events})" in planned.out
    assert f"not compared: 2 scalable topics ({audit}, {events})" in compared.out

    async with AdminClient(held.fleet.green) as green:
        await green.put(f"/tenants/{held.name.tenant}", {"adminRoles": [], "allowedClusters": ["green"]})
        await green.put_namespace(held.name, {"replication_clusters": ["green"]})
        await green.create_topic(held.live)
    publish(held.live, *(cluster.service_url for cluster in held.fleet.sandbox))
    verified = shell.run("verify", *shell.sides, "--namespace", held.name)
    assert verified.state == INCONCLUSIVE, verified.out + verified.err
    assert "Topics: 1 equal, 0 different, 2 inconclusive" in verified.out
    for topic in held.topics:
        assert f"INCONCLUSIVE  {topic}: a scalable topic on blue: it is not compared" in verified.out


async def test_no_migration_moves_their_namespace(held: Held, tmp_path: Path) -> None:
    run = Run("moved", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "files")))
    sides = Sides(held.fleet.blue, held.fleet.green, 5.0)
    with pytest.raises(PreconditionFailed, match="scalable-topics-stay") as refused:
        await steps.check_gates(sides, run, [held.name], None)
    assert f"2 scalable topics on blue: {held.topics[0]}, {held.topics[1]}" in str(refused.value)
    waiver = Waiver(id="scalable-topics-stay", who="ann", why="nobody needs them")
    with pytest.raises(PreconditionFailed, match="'scalable-topics-stay' is never waived: the flag terminates their"):
        await steps.check_gates(sides, run, [held.name], None, waivers=[waiver])


async def test_a_clean_up_counts_them_as_left_on_blue(held: Held) -> None:
    left = await read_leftovers(held.blue, Move(held.name, Strategy.REDIRECT, "a test", {}, {}))
    assert (left.is_unused, left.scalable) == (False, held.topics)


async def test_no_call_of_ours_deletes_their_namespace(held: Held) -> None:
    await held.blue.delete(f"/{held.live.path}")
    path = f"/namespaces/{held.name.path}"
    for force in (False, True):
        with pytest.raises(PreconditionFailed, match=f"holds 2 scalable topics .{held.topics[0]}, .*nothing was sent"):
            await held.blue.delete(path, force=force)
    assert held.name in await held.blue.namespaces(held.name.tenant)
    # What a broker of 5.0.1 does with the same call, without force; one of 5.0.0-M1 deleted the namespace alone.
    async with httpx.AsyncClient() as client:
        answered = await client.delete(f"{held.fleet.sandbox['blue'].admin_url}/admin/v2{path}")
    assert (answered.status_code, await held.blue.namespaces(held.name.tenant)) == (409, (held.name,))
    assert await held.listed() == list(held.topics)


async def test_a_namespace_without_them_is_deleted(held: Held) -> None:
    name = NamespaceName(held.name.tenant, "other")
    await held.blue.put_namespace(name, {"replication_clusters": ["blue"]})
    await held.blue.delete(f"/namespaces/{name.path}")
    assert name not in await held.blue.namespaces(name.tenant)
