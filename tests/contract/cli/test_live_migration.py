"""`migrate` by a connection document: a namespace that the new cluster lacks, and applications that can return."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pulsar
import pytest
from tests.support.live_application import LiveApplication, unread
from tests.support.shell import Said, Shell

from pulsar_fleet.clients.provider import DocumentProvider
from pulsar_fleet.clients.store import ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.overrides import overrides_in
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.procedures.exact_moves import require_holds

DONE, REFUSED = 0, 4
BOTH = ["blue", "green"]
OLD = [b"-%d" % number for number in range(1, 101)]
"""Stored before the application began; `idle` has read the first forty, and three more one by one."""
READ = {*OLD[:40], OLD[50], OLD[60], OLD[70]}


@dataclass
class Lived:
    """An application on blue that follows a document, and a subscription that nobody uses."""

    shell: Shell
    on_blue: AdminClient
    on_green: AdminClient
    topic: TopicName
    live: LiveApplication
    documents: ConnectionDocuments

    @property
    def words(self) -> tuple[str, ...]:
        live = ("--strategy", "replicate_then_move_clients", "--group", "orders")
        return ("migrate", *self.shell.sides, "--namespaces", str(self.topic.namespace), *live)

    async def command(self, *words: str) -> Said:
        return await asyncio.to_thread(self.shell.run, *words)

    async def lists(self) -> list[list[str]]:
        documents = [await admin.namespace(self.topic.namespace) for admin in (self.on_blue, self.on_green)]
        return [sorted((document or {}).get("replication_clusters") or []) for document in documents]

    async def returns(self) -> dict[str, list[str]]:
        """Run → states of the replicators back, as the doctor says of the groups that can return."""
        said = await self.command("doctor", *self.shell.sides, "--select", str(self.topic.namespace), "--json")
        return {row["run"]: [*row["replicators"]["counts"]] for row in said.document["returns"]}

    async def overrides(self) -> list[str | None]:
        """The run that overrides policies, on blue and on green."""
        documents = [await admin.namespace(self.topic.namespace) for admin in (self.on_blue, self.on_green)]
        records = [overrides_in(document or {}) for document in documents]
        return [record.run if record else None for record in records]

    async def is_on(self, admin: AdminClient) -> bool:
        stats = await admin.stats(self.topic)
        return bool(stats["publishers"]) and bool(stats["subscriptions"]["application"]["consumers"])


@pytest.fixture
def apart(request: pytest.FixtureRequest) -> bool:
    """Whether the application publishes and consumes by a client each."""
    return bool(getattr(request, "param", False))


@pytest.fixture
async def lived(
    apart: bool,
    shell: Shell,
    documents: ConnectionDocuments,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> AsyncIterator[Lived]:
    topic = TopicName(new_namespace(), "events")
    tenant, namespace = f"/tenants/{topic.namespace.tenant}", topic.namespace
    await on_blue.put(tenant, {"adminRoles": [], "allowedClusters": [await on_blue.cluster_name()]})
    await on_blue.put_namespace(namespace, {"replication_clusters": [await on_blue.cluster_name()]})
    await on_blue.create_topic(topic)
    await asyncio.to_thread(store, on_blue, str(topic))
    assert shell.run("clients", "set", "orders", shell.sides[0], "--new", "--yes").state == DONE
    with LiveApplication(shell.folder / "clients" / "orders.json", topic, apart=apart).running() as live:
        await live.publish_more(100)
        yield Lived(shell, on_blue, on_green, topic, live, documents)


def store(admin: AdminClient, topic: str) -> None:
    client = open_client(admin.connection)
    idle = client.subscribe(topic, "idle", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    for content in OLD:
        producer.send(content)
    for _ in OLD:
        message = idle.receive(10_000)
        if message.data() in READ:
            idle.acknowledge(message)
    client.close()


def stored(admin: AdminClient, topic: str) -> Counter[bytes]:
    client, contents = open_client(admin.connection), Counter[bytes]()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        contents[reader.read_next(10_000).data()] += 1
    client.close()
    return contents


async def test_a_namespace_moves_returns_moves_again_and_is_completed(lived: Lived) -> None:
    live = lived.live
    said = await lived.command(*lived.words, "--yes", "--json")
    assert said.state == DONE, said.err
    assert (lived.documents.newest("orders"), await lived.lists()) == (2, [BOTH, BOTH])
    await live.publish_more(100)
    assert await lived.is_on(lived.on_green)
    left = {*OLD, *live.sent} - READ
    assert await unread(lived.on_green, str(lived.topic), "idle", left) == left

    run = said.document["runs"][0]["run"]
    refused = await lived.command("abort", run, "--yes")
    assert (refused.state, f"return-clients {run}" in refused.err) == (REFUSED, True), refused.err
    assert await lived.returns() == {run: ["healthy"]}
    for words in (("return-clients", run), lived_again(lived)):
        moved = await lived.command(*words, "--yes")
        assert moved.state == DONE, moved.err
        await live.publish_more(100)
    assert await lived.is_on(lived.on_green)
    completed = await lived.command("migrate", *lived.shell.sides, "--namespaces", str(lived.topic.namespace), "--yes")
    assert (completed.state, await lived.lists()) == (DONE, [["blue"], ["green"]]), completed.err
    await live.publish_more(100)
    await lived.live.receive_all()
    assert await lived.returns() == {}
    # What is delivered again belongs to the moves: there is no more of it now.
    repeated = live.repeated
    await live.publish_more(100)
    await lived.live.receive_all()
    assert live.repeated == repeated


def lived_again(lived: Lived) -> tuple[str, ...]:
    return ("move-clients", *lived.shell.sides, "--group", "orders", "--namespaces", str(lived.topic.namespace))


@pytest.mark.long
@pytest.mark.migration
@pytest.mark.parametrize("apart", [True], indirect=True)
async def test_nothing_is_delivered_twice_while_producers_are_held(lived: Lived) -> None:
    live = lived.live
    await skip_unless_held(lived.on_blue, lived.on_green)
    said = await lived.command(*lived.words, "--exact", "--yes", "--json")
    assert said.state == DONE, said.err
    assert "Producers were held for" in said.err
    await live.publish_more(100)
    for words in (("return-clients", said.document["runs"][0]["run"]), lived_again(lived)):
        moved = await lived.command(*words, "--exact", "--yes")
        assert (moved.state, "Producers were held for" in moved.out) == (DONE, True), moved.err
        await live.publish_more(100)
    await live.receive_all()
    assert live.repeated == 0
    for admin in (lived.on_blue, lived.on_green):
        copies = await asyncio.to_thread(stored, admin, str(lived.topic))
        assert {content for content, count in copies.items() if count > 1} == set()
    assert await lived.overrides() == [None, None]


async def skip_unless_held(*admins: AdminClient) -> None:
    for admin in admins:
        try:
            await require_holds(admin)
        except PreconditionFailed as error:
            pytest.skip(str(error))


async def killed(lived: Lived, words: tuple[str, ...], is_there: Callable[[], Awaitable[bool]]) -> str:
    """Kill a command when something is so; returns its run."""
    shell = lived.shell
    with subprocess.Popen(
        shell.command(*words, "--exact", "--yes"),
        env=shell.environment,
        cwd=shell.folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        async with asyncio.timeout(120):
            while not await is_there():
                assert process.poll() is None, process.stderr and process.stderr.read()
                await asyncio.sleep(0.01)
        process.kill()
        assert process.stderr is not None
        (run,) = {*re.findall(rf"{words[0]} --resume (\S+)", process.stderr.read())}
    return run


@pytest.mark.long
@pytest.mark.migration
async def test_producers_that_killed_moves_have_held_are_released(lived: Lived) -> None:
    blue, green = lived.shell.sides
    await skip_unless_held(lived.on_blue)
    rate = f"/namespaces/{lived.topic.namespace.path}/publishRate"

    async def is_led() -> bool:
        return lived.documents.newest("orders") == 2

    # Behind the publication: who takes the run back finds producers held where clients return to.
    moved = await killed(lived, lived.words, is_led)
    assert await lived.on_blue.get(rate)
    back = await lived.command("return-clients", moved, "--yes")
    assert (back.state, await lived.on_blue.get(rate)) == (DONE, None), back.err
    await lived.live.publish_more(50)

    async def holds() -> bool:
        return bool(await lived.on_blue.get(rate))

    # Before it: others are kept away, and a person can release them. Or the run goes on.
    for side in (blue, green):
        assert (await lived.command("restore", side, "--ended", moved, "--yes")).state == DONE
    run = await killed(lived, lived_again(lived), holds)
    other = await lived.command("move-clients", green, blue, *lived_again(lived)[3:], "--yes")
    assert (other.state, lived.documents.newest("orders")) == (REFUSED, 3), other.err
    restored = [await lived.command("restore", side, "--ended", run, "--yes") for side in (blue, green)]
    assert "publish rate" in restored[0].out, restored[0].err
    assert await lived.overrides() == [None, None]
    await lived.live.publish_more(50)
    again = await killed(lived, lived_again(lived), holds)
    resumed = await lived.command("move-clients", "--resume", again, "--yes")
    assert (resumed.state, "Producers were held for" in resumed.out) == (DONE, True), resumed.err
    await lived.live.publish_more(50)
    assert await lived.is_on(lived.on_green)
    assert await lived.overrides() == [None, None]
    await lived.live.receive_all()


@pytest.mark.long
@pytest.mark.migration
async def test_a_move_that_returned_is_undone(lived: Lived) -> None:
    live = lived.live
    before = await lived.on_blue.namespace(lived.topic.namespace)
    said = await lived.command(*lived.words, "--yes", "--json")
    assert said.state == DONE, said.err
    await live.publish_more(100)
    run = said.document["runs"][0]["run"]
    back = await lived.command("return-clients", run, "--yes")
    assert back.state == DONE, back.err
    await live.publish_more(50)
    assert await lived.is_on(lived.on_blue)
    # What it wrote there would stay there.
    client = await asyncio.to_thread(open_client, lived.on_green.connection)
    await asyncio.to_thread(client.create_producer, str(lived.topic))
    refused = await lived.command("abort", run, "--yes")
    assert (refused.state, "connected to green still" in refused.err) == (REFUSED, True), refused.err
    await asyncio.to_thread(client.close)
    undone = await lived.command("abort", run, "--yes")
    assert undone.state == DONE, undone.err
    assert await lived.on_green.namespace(lived.topic.namespace) is None
    assert await lived.on_blue.namespace(lived.topic.namespace) == before
    await live.publish_more(100)
    await lived.live.receive_all()


@pytest.mark.long
@pytest.mark.migration
async def test_a_run_that_died_when_it_had_published_goes_on(lived: Lived) -> None:
    shell = lived.shell
    with subprocess.Popen(
        shell.command(*lived.words, "--yes"), env=shell.environment, cwd=shell.folder, stderr=subprocess.PIPE, text=True
    ) as process:
        async with asyncio.timeout(120):
            while lived.documents.newest("orders") == 1:
                await asyncio.sleep(0.01)
        process.kill()
        assert process.stderr is not None
        (run,) = {*re.findall(r"migrate --resume (\S+)", process.stderr.read())}
    await lived.live.publish_more(100)
    resumed = await lived.command("migrate", "--resume", run, "--yes")
    assert resumed.state == DONE, resumed.err
    assert "they can return" in resumed.out, resumed.out
    # Killed between its files it publishes again.
    published = lived.documents.current("orders")
    assert (published and published.cluster, await lived.is_on(lived.on_green)) == ("green", True)
    # The settings of blue are its own again.
    assert overrides_in(await lived.on_blue.namespace(lived.topic.namespace) or {}) is None
    assert live_phases(run) == {"moved"}
    await lived.live.receive_all()


def live_phases(run: str) -> set[str]:
    newest = {entry.namespace: entry.phase for entry in Ledger.open().phases(run)}
    return {*newest.values()}


async def test_a_copy_is_undone_before_clients_move(lived: Lived) -> None:
    before = await lived.on_blue.namespace(lived.topic.namespace)
    stopped = await asyncio.to_thread(lived.shell.interrupted, *lived.words, "--yes", after="verify_copy")
    run = re.search(r"Undo it with:  pulsar-fleet abort (\S+)", stopped.err)
    assert run, stopped.err
    undone = await lived.command("abort", run[1], "--yes")
    assert undone.state == DONE, undone.err
    assert await lived.on_green.namespace(lived.topic.namespace) is None
    assert await lived.on_blue.namespace(lived.topic.namespace) == before
    assert lived.documents.newest("orders") == 1
    await lived.live.publish_more(50)


@pytest.mark.long
@pytest.mark.migration
async def test_auto_moves_the_clients_of_a_group_that_all_read_its_document(lived: Lived, served: str) -> None:
    words = ("migrate", *lived.shell.sides, "--namespaces", str(lived.topic.namespace), "--group", "orders")
    alone = await lived.command(*words, "--dry-run")
    assert (alone.state, "no host has read the document of orders" in alone.out) == (DONE, True), alone.err
    assert "the document of orders leads to blue" in alone.out
    # The application of the fixture reads the file, on the same host.
    reading = pulsar.Client(DocumentProvider(f"{served}/orders", token=lambda: "t0"))
    moved = await lived.command(*words, "--yes")
    assert moved.state == DONE, moved.err
    assert await lived.is_on(lived.on_green)
    (run,) = {*re.findall(r"return-clients (\S+?)`?\s", moved.out)}
    assert live_phases(run) == {"moved"}
    assert (await lived.command("return-clients", run, "--yes")).state == DONE
    await asyncio.to_thread(reading.close)
    await lived.live.receive_all()


async def test_what_cannot_be_moved_so_is_refused(lived: Lived) -> None:
    strategy = ("--strategy", "replicate_then_move_clients")
    words = ("migrate", *lived.shell.sides, "--namespaces", str(lived.topic.namespace), "--dry-run")
    for options, problem in (
        (strategy, "The group '' and the strategy 'replicate_then_move_clients' do not belong together"),
        (("--group", "others"), "has no connection document of 'others'"),
        ((*strategy, "--group", "others"), "has no connection document of 'others'"),
        ((*strategy, "--group", "orders", "--service-url", "pulsar://127.0.0.1:1"), "127.0.0.1:1"),
    ):
        said = await lived.command(*words, *options)
        assert (said.state != DONE, problem in said.err) == (True, True), said.err
    assert (await lived.lists(), lived.documents.newest("orders")) == ([["blue"], []], 1)
