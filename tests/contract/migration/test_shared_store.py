"""Two clusters with one configuration store: a namespace is redirected there and back; what both read stays."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.applications import Publisher, Subscriber
from tests.support.kinds import StartClusters
from tests.support.shell import Said, Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.overrides import overrides_in
from pulsar_fleet.migration.prepare.dead_runs import LeftNamespace, find_overrides
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LISTS = ("replication_clusters", "allowed_clusters")


@dataclass
class World:
    """A namespace that blue serves, with a publisher and subscribers of a partitioned and of a plain topic."""

    blue: AdminClient
    green: AdminClient
    shell: Shell
    namespace: NamespaceName

    def __post_init__(self) -> None:
        self.events, self.audit = TopicName(self.namespace, "events"), TopicName(self.namespace, "audit")
        self.publishers = [Publisher(topic, ["a", "b"], per_second=50) for topic in (self.events, self.audit)]
        self.subscribers = [Subscriber(topic, "billing") for topic in (self.events, self.audit)]
        self.path = f"/namespaces/{self.namespace.path}"

    async def make(self) -> None:
        tenant = {"adminRoles": [], "allowedClusters": ["blue", "green"]}
        await self.blue.put(f"/tenants/{self.namespace.tenant}", tenant)
        await self.blue.put_namespace(self.namespace, {"replication_clusters": ["blue"]})
        await self.blue.create_partitioned_topic(self.events, 3)
        await self.blue.create_topic(self.audit)
        for application in (*self.subscribers, *self.publishers):
            application.start(self.blue.connection)
        await asyncio.sleep(1)

    async def run(self, command: str, *words: object) -> Said:
        scope = ("--namespaces", self.namespace, "--yes", "--json")
        return await asyncio.to_thread(self.shell.run, command, *self.shell.sides, *scope, *words)

    async def allow_green(self) -> None:
        await self.blue.post(f"{self.path}/allowedClusters", ["blue", "green"])

    async def lists(self, *, overridden: str = "") -> list[set[str]]:
        """Both lists, the same on both clusters.

        :param overridden: the cluster whose topics a run keeps from being deleted as inactive; nothing else is.
        """
        documents: list[JsonObject] = [await admin.namespace(self.namespace) or {} for admin in (self.blue, self.green)]
        read = [[{*document[key]} for key in LISTS] for document in documents]
        assert read[0] == read[1]
        record = overrides_in(documents[0])
        assert (record.cluster if record else "") == overridden
        assert [find.overridden for find in (await self.left(overridden))] == [("inactive-topic policies",)] * bool(
            record
        )
        return read[0]

    async def left(self, overridden: str) -> tuple[LeftNamespace, ...]:
        """What is left on the cluster; on the other one, which reads the same record, nothing is."""
        left = {
            await admin.cluster_name(): (await find_overrides(admin, namespaces=[str(self.namespace)])).namespaces
            for admin in (self.blue, self.green)
        }
        assert not any(each.overridden for name in left if name != overridden for each in left[name])
        return left.get(overridden, ())

    async def restart_publishers(self) -> None:
        """A redirected producer does not come back over its old connection (observed), as on separate stores."""
        for publisher in self.publishers:
            await asyncio.to_thread(publisher.restart, self.green.connection)

    async def settle(self) -> None:
        await asyncio.sleep(2)
        for publisher in self.publishers:
            await asyncio.to_thread(publisher.stop)
        for publisher, subscriber in zip(self.publishers, self.subscribers, strict=True):
            async with asyncio.timeout(30):
                while subscriber.received.lost(publisher.sent):
                    await asyncio.sleep(0.2)
            assert subscriber.received.out_of_order() == []
            assert subscriber.received.twice() == 0
        assert [error for each in (*self.publishers, *self.subscribers) for error in each.errors] == []
        assert [await admin.partitioned_topics(self.namespace) for admin in (self.blue, self.green)] == [
            (self.events,),
            (self.events,),
        ]


@pytest.fixture(scope="module")
def sharing(
    tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters, request: pytest.FixtureRequest
) -> Iterator[Sandbox]:
    folder, version = tmp_path_factory.mktemp("sharing"), getattr(request, "param", "4.2.4")
    with start_clusters(folder, clusters=("blue", "green"), version=version, shared_store=True) as sandbox:
        yield sandbox


@pytest.fixture
async def world(sharing: Sandbox, new_namespace: Callable[[], NamespaceName], records: Path) -> AsyncIterator[World]:
    blue, green = (
        ClusterConnection(name=each.name, admin_url=each.admin_url, service_url=each.service_url) for each in sharing
    )
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        world = World(on_blue, on_green, Shell.between(records, blue, green), new_namespace())
        await world.make()
        yield world
        for application in (*world.publishers, *world.subscribers):
            await asyncio.to_thread(application.stop)


@pytest.mark.parametrize("sharing", ["4.2.4", "4.0.7"], indirect=True)
async def test_a_namespace_is_redirected_there_and_back(world: World) -> None:
    refused = await world.run("migrate", "--strategy", "redirect")
    assert (refused.state, "green-not-in-list" in refused.err) == (4, True)
    # The printed call, which leaves the list of clusters alone: with both in it they would replicate to each other.
    call = re.search(r"green: POST /admin/v2(\S+/allowedClusters) (\[.*\])", refused.err)
    assert call
    assert call[2] == '["blue", "green"]'
    await world.green.post(call[1], ["blue", "green"])
    there = await world.run("migrate", "--strategy", "redirect")
    assert there.state == 0, there.err
    assert await world.lists(overridden="blue") == [{"green"}, {"blue", "green"}]
    await world.restart_publishers()
    await asyncio.sleep(2)
    back = await world.run("fail-back", "--strategy", "redirect", "--allow-removal")
    assert back.state == 0, back.err
    assert await world.lists(overridden="green") == [{"blue"}, {"blue", "green"}]
    await world.settle()


async def test_topics_that_are_removed_on_blue_stay_on_green(world: World) -> None:
    """The number of partitions is in the store that both read."""
    await world.allow_green()
    moved = await world.run("migrate", "--strategy", "redirect", "--remove-topics-on-blue")
    assert moved.state == 0, moved.err
    assert await world.blue.topics(world.namespace) == ()
    assert len(await world.green.topics(world.namespace)) == 4
    await world.settle()


async def test_an_abort_leaves_blue_as_it_was(world: World) -> None:
    await world.allow_green()
    window = ("--change-windows", "2020-01-01T00:00Z/2020-01-02T00:00Z")
    stopped = await world.run("migrate", "--strategy", "redirect", *window)
    assert stopped.state != 0
    run = re.search(r"cli/migrate-\S+", stopped.out + stopped.err)
    assert run
    aborted = await asyncio.to_thread(world.shell.run, "abort", run[0].strip('",'), "--yes")
    assert aborted.state == 0, aborted.err
    assert await world.lists() == [{"blue"}, {"blue", "green"}]
    await world.settle()


async def test_what_would_copy_or_replicate_is_refused(world: World) -> None:
    await world.allow_green()
    copied = await world.run("migrate", "--strategy", "replicate_then_switch")
    assert (copied.state, "shared-configuration-store" in copied.err) == (4, True)
    await world.blue.post(f"{world.path}/replication", ["blue", "green"])
    linked = await world.run("migrate", "--strategy", "redirect")
    assert (linked.state, "replicates-in-shared-store" in linked.err) == (4, True)
    assert (await world.lists())[0] == {"blue", "green"}
