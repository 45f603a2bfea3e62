"""A topic's list of clusters counts instead of its namespace's: what is in effect is extended, never cut unasked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.support.data_centres import finding_ids, make_origin, opened, plan, replicate, request_of, undo
from tests.support.fleets import connection, shell_of
from tests.support.kinds import StartClusters
from tests.support.replication import know_each_other
from tests.support.shadows import delivered, publish
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.replication import steps
from pulsar_fleet.replication.steps import Stage
from pulsar_sandbox import Sandbox

NAMES = ("blue", "green", "c")
NOWHERE = {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"}


async def own_list(admin: AdminClient, topic: TopicName, scope: bool = False) -> Json:
    return sorted(await admin.get(f"/{topic.path}/replication", isGlobal=scope) or ())


async def store_list(admin: AdminClient, topic: TopicName, clusters: list[str], scope: bool = False) -> None:
    """Store a list of the topic itself, and wait until the broker has read it."""
    await admin.post(f"/{topic.path}/replication", clusters, isGlobal=scope)
    async with asyncio.timeout(30):
        while await own_list(admin, topic, scope) != clusters:
            await asyncio.sleep(0.1)


@pytest.fixture
def connections(blue: ClusterConnection, green: ClusterConnection, records: Path) -> dict[str, ClusterConnection]:
    return {"blue": blue, "green": green}


@asynccontextmanager
async def replicating_to_far(admin: AdminClient, namespace: NamespaceName) -> AsyncIterator[TopicName]:
    """A topic in a namespace of blue that replicates to a cluster `far`, which does not answer."""
    _, audit = await make_origin(admin, namespace)
    known = "far" in await admin.clusters()
    if not known:
        await admin.put_cluster("far", NOWHERE)
    await admin.post(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "far"]})
    await admin.post(f"/namespaces/{namespace.path}/replication", ["blue", "far"])
    async with asyncio.timeout(30):
        # What is published before the replicator has its cursor does not wait for `far`.
        while "pulsar.repl.far" not in (await admin.internal_stats(audit))["cursors"]:
            await asyncio.sleep(0.1)
    yield audit
    if await own_list(admin, audit):
        await admin.delete(f"/{audit.path}/replication")
    await admin.post(f"/namespaces/{namespace.path}/replication", ["blue"])
    await admin.post(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    if not known:
        await admin.delete("/clusters/far")


@pytest.mark.cluster
async def test_a_topic_by_itself_goes_on_to_the_clusters_of_its_namespace(
    connections: dict[str, ClusterConnection],
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    # Else the run makes green known to blue, and its undo is refused where tenants of other tests allow green.
    await know_each_other(on_blue, on_green)
    async with replicating_to_far(on_blue, new_namespace()) as topic:
        await asyncio.to_thread(publish, connections["blue"].service_url, topic, 5)
        done = await replicate(connections, request_of("blue", "green", topics=[str(topic)]), "extends")
        assert await own_list(on_blue, topic) == ["blue", "far", "green"]
        await asyncio.to_thread(publish, connections["blue"].service_url, topic, 5)
        assert (await on_blue.stats(topic, precise=True))["replication"]["far"]["replicationBacklog"] == 10
        assert await asyncio.to_thread(delivered, connections["green"].service_url, topic) == 5
        again = await plan(connections, request_of("blue", "green", topics=[str(topic)]), "again")
        assert again.plan.changes == 0
        await undo(done, {"blue": on_blue, "green": on_green})
        assert await own_list(on_blue, topic) == []


@pytest.mark.cluster
async def test_a_topics_global_list_is_extended_too(
    connections: dict[str, ClusterConnection], on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    async with replicating_to_far(on_blue, new_namespace()) as topic:
        await store_list(on_blue, topic, ["blue", "far"], scope=True)
        await on_blue.post(f"/namespaces/{topic.namespace.path}/replication", ["blue"])
        await replicate(connections, request_of("blue", "green", topics=[str(topic)]), "extends-global")
        assert await own_list(on_blue, topic) == ["blue", "far", "green"]
        await on_blue.delete(f"/{topic.path}/replication", isGlobal=True)


@pytest.mark.cluster
async def test_a_list_that_would_end_what_began_since_the_plan_is_not_stored(
    connections: dict[str, ClusterConnection], on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    async with replicating_to_far(on_blue, new_namespace()) as topic:
        path, request = (
            f"/namespaces/{topic.namespace.path}/replication",
            request_of("blue", "green", topics=[str(topic)]),
        )
        await on_blue.post(path, ["blue"])
        done = await plan(connections, request, "late")
        await on_blue.post(path, ["blue", "far"])
        async with opened(connections, request) as clusters:
            for step in (steps.apply_contents, steps.start_links):
                with pytest.raises(PreconditionFailed, match="replicationClusters on blue is not as it was planned"):
                    await step(clusters, done.planned, request, done.run)
            # Between that check and the write a list may change too.
            starts = done.plan.clusters["blue"].starts
            with pytest.raises(InvalidRequest, match="replication to far would end"):
                await Stage(clusters, done.run, "late").apply_one("blue", starts)
        assert await own_list(on_blue, topic) == []


@pytest.mark.cluster
async def test_a_topic_that_its_own_list_keeps_local_does_not_fail_the_run(
    connections: dict[str, ClusterConnection], on_blue: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    events, audit = await make_origin(on_blue, namespace)
    await store_list(on_blue, audit, ["blue"])
    done = await replicate(connections, request_of("blue", "green", namespaces=[str(namespace)], history=True), "kept")
    assert finding_ids(done) == {"topic-kept-local"}
    assert done.links == 2 * len(events.partitions(3)) + 1
    assert await own_list(on_blue, audit) == ["blue"]
    # A cursor of a replicator that never runs would keep every message.
    assert "pulsar.repl.green" not in (await on_blue.internal_stats(audit))["cursors"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("topic-lists"), clusters=NAMES) as sandbox:
        yield sandbox


@pytest.fixture
async def admins(three: Sandbox) -> AsyncIterator[dict[str, AdminClient]]:
    async with AsyncExitStack() as stack:
        yield {cluster.name: await stack.enter_async_context(AdminClient(connection(cluster))) for cluster in three}


@pytest.fixture
def shell(records: Path, three: Sandbox) -> Shell:
    return shell_of(records, ("blue", "green"), {cluster.name: connection(cluster) for cluster in three})


async def arrives(three: Sandbox, name: str, topic: TopicName, count: int, subscription: str) -> None:
    """Until a cluster has stored so many messages; no more come."""
    got = 0
    async with asyncio.timeout(60):
        while got < count:
            got = await asyncio.to_thread(delivered, three[name].service_url, topic, subscription)
    assert got == count, name


def done(shell: Shell, *words: object) -> str:
    said = shell.run(*words, "--yes")
    assert said.state == 0, said.out + said.err
    return said.out


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_copy_leaves_the_replication_of_its_topic_and_ends_alone(
    three: Sandbox, admins: dict[str, AdminClient], shell: Shell, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    _, topic = await make_origin(admins["blue"], namespace)
    done(shell, "replicate", "blue", "green", "--namespaces", namespace)
    done(shell, "serve-read-only", "blue", "--topics", topic, "--other-cluster", "c")
    assert await own_list(admins["blue"], topic) == ["blue", "c", "green"]
    await asyncio.to_thread(publish, three["blue"].service_url, topic, 50)
    for name in NAMES:
        await arrives(three, name, topic, 50, "after")

    # The page says that a copy ends with its cluster in 'leaving'.
    done(shell, "replicate", "blue", "green", "--leaving", "c", "--namespaces", namespace)
    assert await own_list(admins["blue"], topic) == []
    await asyncio.to_thread(publish, three["blue"].service_url, topic, 50)
    await arrives(three, "green", topic, 100, "ended")
    await arrives(three, "c", topic, 50, "ended")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_namespace_whose_topic_has_a_copy_is_replicated_with_this_topic(
    three: Sandbox, admins: dict[str, AdminClient], shell: Shell, new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    _, topic = await make_origin(admins["blue"], namespace)
    await asyncio.to_thread(publish, three["blue"].service_url, topic, 10)
    done(shell, "serve-read-only", "blue", "--topics", topic, "--other-cluster", "c")
    assert await own_list(admins["blue"], topic) == ["blue", "c"]
    done(shell, "replicate", "blue", "green", "--namespaces", namespace, "--history")
    assert await own_list(admins["blue"], topic) == ["blue", "c", "green"]
    await asyncio.to_thread(publish, three["blue"].service_url, topic, 40)
    for name in NAMES:
        await arrives(three, name, topic, 50, "after")
