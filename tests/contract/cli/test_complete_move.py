"""`migrate` where applications were moved before: they cannot return any more, and notice nothing."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pulsar
import pytest
from tests.support.live_application import LiveApplication, make_linked_topic, receive, unread
from tests.support.shell import Said, Shell

from pulsar_fleet.clients.store import ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName

DONE, ERROR, REFUSED, FAILED = 0, 1, 4, 5
BOTH = ["blue", "green"]
NIGHTLY = "nightly"
log = logging.getLogger(__name__)


@dataclass
class Moved:
    """An application that was moved from blue to green and goes on, and a client with the address of blue."""

    shell: Shell
    on_blue: AdminClient
    on_green: AdminClient
    topic: TopicName
    live: LiveApplication
    old: pulsar.Client
    run: str

    @property
    def words(self) -> tuple[str, ...]:
        return ("migrate", *self.shell.sides, "--namespaces", str(self.topic.namespace))

    async def command(self, *words: str) -> Said:
        return await asyncio.to_thread(self.shell.run, *words)

    async def lists(self) -> list[list[str]]:
        path = f"/namespaces/{self.topic.namespace.path}/replication"
        return [sorted(await admin.get(path)) for admin in (self.on_blue, self.on_green)]


@pytest.fixture
async def move(
    shell: Shell,
    documents: ConnectionDocuments,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> AsyncIterator[Moved]:
    topic = await make_linked_topic(on_blue, on_green, new_namespace())
    blue, green = shell.sides
    assert shell.run("clients", "set", "orders", blue, "--new", "--yes").state == DONE
    old = await asyncio.to_thread(open_client, on_blue.connection, 5)
    await on_blue.create_subscription(topic, NIGHTLY, "latest")
    with LiveApplication(shell.folder / "clients" / "orders.json", topic).running() as live:
        await live.publish_more(100)
        words = ("--group", "orders", "--namespaces", str(topic.namespace), "--yes", "--json")
        said = await asyncio.to_thread(shell.run, "move-clients", blue, green, *words)
        assert (said.state, documents.newest("orders")) == (DONE, 2), said.err
        yield Moved(shell, on_blue, on_green, topic, live, old, said.document["run"])
    await asyncio.to_thread(old.close)


async def test_a_move_is_completed_while_applications_go_on(move: Moved) -> None:
    """Also of what a client with the old address reads and writes until the end nothing is lost."""
    live, topic = move.live, str(move.topic)
    late = await asyncio.to_thread(move.old.subscribe, topic, "late", initial_position=pulsar.InitialPosition.Earliest)
    producer = await asyncio.to_thread(move.old.create_producer, topic)
    written = [b"-%d" % number for number in range(1, 21)]
    for content in written:
        await asyncio.to_thread(producer.send, content)
    read = {(await asyncio.to_thread(receive, late)) for _ in range(30)}
    completing = asyncio.create_task(move.command(*move.words, "--yes", "--json"))
    async with asyncio.timeout(60):
        # The run waits for them, and carries the position.
        while "late" not in (await move.on_green.stats(move.topic))["subscriptions"]:
            assert not completing.done(), completing.result().err
            await asyncio.sleep(0.2)
    await asyncio.sleep(1)
    assert not completing.done()
    sent = set(live.sent)
    for client in (producer, late):
        await asyncio.to_thread(client.close)
    said = await completing
    assert said.state == DONE, said.err
    assert await move.lists() == [["blue"], ["green"]]
    await live.publish_more(100)
    assert set(written) <= live.received.keys()

    with pytest.raises(pulsar.TopicTerminated):
        await asyncio.to_thread(move.old.create_producer, topic)
    # As it was when it left: neither what it had read, nor less than what it had not.
    left = (sent | {*written}) - read
    assert await unread(move.on_green, topic, "late", left) >= left
    # As an application does that starts tomorrow with the address of yesterday.
    assert await unread(move.on_blue, topic, "application", {b"anything"}) == set()
    for words in ((), ("--skip-positions",)):
        back = await move.command("return-clients", move.run, "--yes", *words)
        assert (back.state, "terminated on blue, as by a migration" in back.err) == (FAILED, True), back.err
    again = await move.command(*move.words, "--dry-run")
    assert (again.state, "Earlier runs have moved" in again.err) == (ERROR, True), again.err
    await live.receive_all()


@pytest.mark.long
@pytest.mark.migration
async def test_a_completion_that_is_undone_lets_clients_return(move: Moved) -> None:
    await asyncio.to_thread(move.old.create_producer, str(move.topic))
    stopped = await asyncio.to_thread(move.shell.interrupted, *move.words, "--yes", after="wait_repointed")
    run = re.search(r"Undo it with:  pulsar-fleet abort (\S+)", stopped.err)
    assert run, stopped.err
    undone = await move.command("abort", run[1], "--yes")
    assert (undone.state, await move.lists()) == (DONE, [BOTH, BOTH]), undone.err
    await move.live.publish_more(100)
    back = await move.command("return-clients", move.run, "--yes")
    assert back.state == DONE, back.err
    await move.live.publish_more(100)
    await move.live.receive_all()


async def receive_both(live: LiveApplication, old: LiveApplication) -> None:
    """Until both, with a subscription each of one topic, have what both had sent."""
    sent = {*live.sent, *old.sent}
    async with asyncio.timeout(30):
        while sent - live.received.keys() or sent - old.received.keys():
            await asyncio.sleep(0.2)
    log.info("twice %d and %d, gap %.2f and %.2f s", live.repeated, old.repeated, live.gap, old.gap)


async def test_who_stayed_on_blue_is_redirected_when_the_move_is_completed(move: Moved) -> None:
    """An application without a document, in the same topic: it goes on, and gets what both have written."""
    live, topic = move.live, move.topic
    url = move.on_blue.connection.require_service_url()
    # It has its position on green since the move, reads on blue since then, and is away when the move is completed.
    nightly = await asyncio.to_thread(move.old.subscribe, str(topic), NIGHTLY)
    await asyncio.sleep(1)
    before = {*live.sent}
    read = {await asyncio.to_thread(receive, nightly) for _ in range(50)}
    await asyncio.to_thread(nightly.close)
    # A client each: of Python's up to 4.2.0 a producer and a consumer of one can deadlock on a redirect.
    with LiveApplication(url, topic, subscription="late", first=1_000_000, holds=0, apart=True).running() as old:
        await old.publish_more(100)
        said = await move.command(*move.words, "--strategy", "complete_move_and_redirect", "--yes", "--json")
        assert said.state == DONE, said.err
        assert await move.lists() == [["blue"], ["green"]]
        repeated = re.search(r"`late` on .* Up to (\d+) entr", said.document["runs"][-1]["report"])
        assert repeated, said.document
        await old.publish_more(200)
        await live.publish_more(100)
        await receive_both(live, old)
        # What the report forecasts, and what was in flight when the topic ended.
        assert old.repeated <= int(repeated[1]) + 20
    assert (live.lost, old.lost) == (set(), set())
    wanted = {*live.sent, *old.sent} - read
    again = await unread(move.on_green, str(topic), NIGHTLY, wanted)
    assert (before - read <= again, again & read) == (True, set())
    tomorrow = await asyncio.to_thread(move.old.create_producer, str(topic))
    await asyncio.to_thread(tomorrow.send, b"-1")
    async with asyncio.timeout(30):
        while b"-1" not in live.received:
            await asyncio.sleep(0.2)
    back = await move.command("return-clients", move.run, "--yes")
    assert (back.state, "Its topics take no message again" in back.err) == (FAILED, True), back.err


@pytest.mark.long
async def test_a_completion_that_dies_right_before_the_redirect_goes_on(move: Moved) -> None:
    """From the end of the way to blue on it is not undone: what is written on green is missing on blue."""
    live, topic = move.live, move.topic
    url = move.on_blue.connection.require_service_url()
    with LiveApplication(url, topic, subscription="late", first=1_000_000, holds=0, apart=True).running() as old:
        await old.publish_more(100)
        words = (*move.words, "--strategy", "complete_move_and_redirect", "--quiesce-seconds", "5", "--yes")
        process = await asyncio.to_thread(move.shell.begun, *words)
        async with asyncio.timeout(60):
            while "blue" in (await move.lists())[1]:
                await asyncio.sleep(0.1)
        process.kill()
        _, said = await asyncio.to_thread(process.communicate)
        assert (await move.on_blue.namespace(topic.namespace) or {}).get("migrated") is not True
        run = re.search(r"Run (\S+)\.", said)
        assert run, said
        undone = await move.command("abort", run[1], "--yes")
        assert (undone.state, "has begun: what applications write" in undone.err) == (REFUSED, True), undone.err
        resumed = await move.command("migrate", "--resume", run[1], "--yes")
        assert resumed.state == DONE, resumed.err
        await old.publish_more(100)
        await receive_both(live, old)
    assert (live.lost, old.lost) == (set(), set())


@pytest.mark.long
@pytest.mark.migration
async def test_moved_applications_are_not_moved_once_more_by_a_flag(move: Moved) -> None:
    refused = await move.command(*move.words, "--strategy", "replicate_then_switch", "--dry-run")
    assert (refused.state, "BLOCKER clients-led-to-green" in refused.err) == (REFUSED, True), refused.err
    assert "move the namespace with complete_move" in refused.err
    planned = await move.command(*move.words, "--dry-run", "--json")
    assert planned.state == DONE, planned.err
    back = await move.command("return-clients", move.run, "--yes")
    assert back.state == DONE, back.err
    planned = await move.command(*move.words, "--strategy", "replicate_then_repoint", "--dry-run")
    assert "first move the clients of orders (move_clients)" in planned.err, planned.err
    await move.live.publish_more(50)
