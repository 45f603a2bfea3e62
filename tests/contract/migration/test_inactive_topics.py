"""Topics that green's broker deletes as inactive while a migration runs are there again, with all that is theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from tests.support.fleets import connection, shell_of
from tests.support.kinds import StartClusters
from tests.support.moved_namespace import MovedNamespace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.prepare import target
from pulsar_fleet.migration.prepare.freeze import keep_unused
from pulsar_fleet.planning.apply.outcome import PlanResult
from pulsar_fleet.planning.plan import Plan
from pulsar_sandbox import Sandbox

SECONDS = 6
SETTINGS = {
    "brokerDeleteInactiveTopicsFrequencySeconds": "1",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": str(SECONDS),
}
BOTH = ("blue", "green")
SCHEMAS = [
    {"type": "AVRO", "schema": json.dumps({"type": "record", "name": "R", "fields": [field]}), "properties": {}}
    for field in ({"name": "a", "type": "int"}, {"name": "b", "type": "string"})
]
"""Two versions that only a namespace takes which takes every schema."""


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


async def give(admin: AdminClient, topic: TopicName) -> None:
    """Give a topic all that a broker deletes with it."""
    await admin.post(f"/{topic.path}/maxConsumers", 50)
    await admin.post(f"/{topic.path}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    await admin.post(f"/{topic.path}/permissions/auditor", ["consume"])
    strategy = f"/namespaces/{topic.namespace.path}/schemaCompatibilityStrategy"
    await admin.put(strategy, "ALWAYS_COMPATIBLE")
    for schema in SCHEMAS:
        await admin.post(f"/schemas/{topic.path.removeprefix('persistent/')}/schema", schema)
    await admin.put(strategy, "FULL")


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


async def test_only_what_was_deleted_is_made_again_also_after_an_interruption(
    moved: MovedNamespace, on_blue: AdminClient, on_green: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, parted, live, remade = (moved.topic(name) for name in ("idle", "parted", "live", "remade"))
    for topic in (idle, remade):
        await on_blue.create_topic(topic)
    await on_blue.create_partitioned_topic(parted, 2)
    for topic in (idle, parted, remade):
        await give(on_blue, topic)
    reference, _ = await steps.check_gates(moved.sides, moved.run, [moved.namespace], Strategy.REPLICATE)
    moves = Moves.from_json(moved.run.artefacts.read_json(reference))
    await steps.prepare_green(moved.sides, moved.run, moves)
    expected = [await facts(on_blue, topic) for topic in (idle, parted, remade)]
    assert [await facts(on_green, topic) for topic in (idle, parted, remade)] == expected
    # Somebody has set other values on green since, and its broker deletes topics.
    await on_green.post(f"/namespaces/{moved.namespace.path}/messageTTL", 77)
    await on_green.post(f"/{live.path}/maxConsumers", 9)
    for topic in (idle, parted.partition(1), remade):
        await on_green.delete(f"/{topic.path}", force=True)
    # As the broker does for a replicator that connects.
    await on_green.create_topic(remade)

    async def interrupted(plan: Plan, admin: AdminClient, *_: object, **__: object) -> PlanResult:
        await admin.create_topic(idle)
        raise Unavailable("the worker was killed")

    with monkeypatch.context() as patch:
        patch.setattr(target, "apply_plan", interrupted)
        with pytest.raises(Unavailable):
            await target.prepare_deleted(on_blue, on_green, moved.run, moves.moves)
    await target.prepare_deleted(on_blue, on_green, moved.run, moves.moves)
    assert [await facts(on_green, topic) for topic in (idle, parted, remade)] == expected
    assert not await gone(on_green, parted.partition(1))
    assert await on_green.get(f"/namespaces/{moved.namespace.path}/messageTTL") == 77
    assert await on_green.get(f"/{live.path}/maxConsumers") == 9
    calls = on_green.calls
    await target.prepare_deleted(on_blue, on_green, moved.run, moves.moves)
    assert on_green.calls == calls + 3


@pytest.mark.long
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
            await give(blue, topic)
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


@pytest.mark.long
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
