"""Topics that green's broker deletes as inactive while a migration runs are there again, with all that is theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from tests.support.fleets import connection, shell_of
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.prepare.inactive_topics import keep_unused
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.migration, pytest.mark.timeout(300)]

SECONDS = 6
SETTINGS = {
    "brokerDeleteInactiveTopicsFrequencySeconds": "1",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": str(SECONDS),
}
BOTH = ("blue", "green")
SCHEMA = {"type": "STRING", "schema": "", "properties": {}}


@pytest.fixture(scope="module")
def deleting(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """Brokers that delete an inactive topic after seconds, not after a minute."""
    folder = tmp_path_factory.mktemp("deleting")
    with start_clusters(folder, clusters=BOTH, settings=dict.fromkeys(BOTH, SETTINGS)) as sandbox:
        yield sandbox


@pytest.fixture
async def admins(deleting: Sandbox) -> AsyncIterator[tuple[AdminClient, AdminClient]]:
    async with AsyncExitStack() as stack:
        blue, green = [await stack.enter_async_context(AdminClient(connection(deleting[name]))) for name in BOTH]
        yield blue, green


async def gone(admin: AdminClient, topic: TopicName) -> bool:
    return topic not in await admin.topics(topic.namespace)


async def until_gone(admin: AdminClient, topic: TopicName) -> None:
    async with asyncio.timeout(5 * SECONDS):
        while not await gone(admin, topic):
            await asyncio.sleep(0.2)


async def facts(admin: AdminClient, topic: TopicName) -> dict[str, Json]:
    """What a broker deletes with a topic."""
    found: dict[str, Json] = {}
    for policy in ("maxConsumers", "retention", "permissions"):
        try:
            found[policy] = await admin.get(f"/{topic.path}/{policy}")
        except NotFound:
            found[policy] = None
    found["schemas"] = [(version["type"], version["data"]) for version in await admin.schemas(topic)]
    return found


@pytest.mark.parametrize("strategy", [Strategy.REDIRECT, Strategy.REPLICATE])
async def test_a_resumed_migration_makes_again_what_was_deleted_with_topics(
    strategy: Strategy, deleting: Sandbox, admins: tuple[AdminClient, AdminClient], records: Path
) -> None:
    """A killed run, a long window or a slow wave: no client and no subscription holds the topics on green."""
    blue, green = admins
    namespace = NamespaceName(f"test-{strategy.value.replace('_', '-')}", "n")
    topics = [TopicName(namespace, "plain"), TopicName(namespace, "parted")]
    await blue.put(f"/tenants/{namespace.tenant}", {"adminRoles": ["owner"], "allowedClusters": ["blue"]})
    await blue.put_namespace(namespace, {"replication_clusters": ["blue"]})
    shell = shell_of(records, BOTH, {name: connection(deleting[name]) for name in BOTH})
    with closing(open_client(connection(deleting["blue"]), 20)) as client:
        await blue.create_topic(topics[0])
        await blue.create_partitioned_topic(topics[1], 2)
        # Producers keep the topics on blue; what they send is read by readers, without subscriptions.
        producers = [client.create_producer(str(topic)) for topic in topics]
        for topic in topics:
            await blue.post(f"/{topic.path}/maxConsumers", 50)
            await blue.post(f"/{topic.path}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
            await blue.post(f"/{topic.path}/permissions/auditor", ["consume"])
            await blue.post(f"/schemas/{topic.path.removeprefix('persistent/')}/schema", SCHEMA)
        expected = [await facts(blue, topic) for topic in topics]
        assert all(fact["retention"] and fact["permissions"] and fact["schemas"] for fact in expected)
        options = ("--namespaces", namespace, "--strategy", strategy, "--yes")
        await asyncio.to_thread(lambda: shell.killed("migrate", *BOTH, *options, after="start_replication"))
        await until_gone(green, topics[0])
        (run,) = Ledger.open().migrations()
        said = await asyncio.to_thread(shell.run, "migrate", "--resume", run.run_id, "--yes")
        assert said.state == 0, said.out[-3000:] + said.err[-3000:]
        for producer in producers:
            producer.send(b"to green")
        assert [await facts(green, topic) for topic in topics] == expected


async def test_an_unused_topic_that_is_kept_outlives_one_that_is_not(admins: tuple[AdminClient, AdminClient]) -> None:
    """Until the producers of a namespace arrive on green: see where the cut-over calls it."""
    green, namespace = admins[1], NamespaceName("test-kept", "n")
    await green.put(f"/tenants/{namespace.tenant}", {"adminRoles": ["owner"], "allowedClusters": ["green"]})
    await green.put_namespace(namespace, {"replication_clusters": ["green"]})
    kept, left, used = (TopicName(namespace, name) for name in ("kept", "left", "used"))
    for topic in (kept, left, used):
        await green.create_topic(topic)
    await green.create_subscription(used, "app")
    created = (await green.stats(used, precise=False))["topicCreationTimeStamp"]
    await asyncio.sleep(SECONDS - 3)
    await keep_unused(green, [kept, used])
    await until_gone(green, left)
    assert not await gone(green, kept)
    assert (await green.stats(used, precise=False))["topicCreationTimeStamp"] == created, "it was not unloaded"
