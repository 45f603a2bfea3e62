"""`pulsar-fleet move-clients` and `return-clients`: live applications keep their positions, there and back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from tests.support.live_application import LiveApplication, make_linked_topic
from tests.support.shell import Shell

from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName

PAGE = Path(__file__).parents[3] / "docs" / "move_clients.md"
DONE, ERROR, USAGE, REFUSED, PARTLY = 0, 1, 2, 4, 5
log = logging.getLogger(__name__)


@pytest.mark.long
@pytest.mark.replication
async def test_live_applications_keep_their_positions_there_and_back(
    shell: Shell,
    documents: ConnectionDocuments,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    namespace = new_namespace()
    topic = await make_linked_topic(on_blue, on_green, namespace)
    blue, green = shell.sides
    assert shell.run("clients", "set", "orders", blue, "--new", "--yes").state == DONE
    # Of an application that is not connected now.
    await on_blue.create_subscription(topic, "nightly", "earliest", {"owner": "batch"})
    with LiveApplication(shell.folder / "clients" / "orders.json", topic).running() as live:
        await live.publish_more(200)
        words = ("move-clients", blue, green, "--group", "orders", "--namespaces", str(namespace))
        dry = await asyncio.to_thread(shell.run, *words, "--dry-run", "--json")
        assert (dry.state, documents.newest("orders")) == (DONE, 1), dry.err
        moved = await asyncio.to_thread(shell.run, *words, "--yes", "--json")
        assert moved.state == DONE, moved.err
        await live.publish_more(100)
        there = await on_green.stats(topic)
        assert there["subscriptions"]["nightly"]["subscriptionProperties"] == {"owner": "batch"}
        back = await asyncio.to_thread(shell.run, "return-clients", moved.document["run"], "--yes", "--json")
        assert back.state == DONE, back.err
        assert {cursor["absent"] for cursor in back.document["positions"]["cursors"]} == {0}
        # The same run a second time: its clients are elsewhere by now.
        late = await asyncio.to_thread(shell.run, "return-clients", moved.document["run"], "--yes")
        assert (late.state, "are led to blue by version 3" in late.err) == (REFUSED, True), late.err
        await live.publish_more(100)
        again = await asyncio.to_thread(shell.run, "return-clients", back.document["run"], "--yes", "--json")
        assert again.state == DONE, again.err
        await live.publish_more(100)
    assert live.lost == set()
    # A hundred a second. Without the carried positions everything since the last move would be delivered again.
    assert live.repeated < 300
    published = documents.published("orders")
    assert published is not None
    assert (published.cluster, published.namespaces) == ("green", (str(namespace),))
    assert await unread(on_green.connection, topic, "nightly") == set(live.sent)


@pytest.mark.long
@pytest.mark.replication
async def test_a_move_from_which_nobody_could_come_back_is_refused(
    shell: Shell,
    documents: ConnectionDocuments,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    namespace, other = new_namespace(), new_namespace()
    topic = await make_linked_topic(on_blue, on_green, namespace)
    await make_linked_topic(on_blue, on_green, other)
    blue, green = shell.sides

    def move(*words: str, spaces: NamespaceName = namespace) -> tuple[int, str]:
        said = shell.run("move-clients", blue, green, "--group", "orders", "--namespaces", str(spaces), *words)
        return said.state, f"{said.out}{said.err}"

    state, said = move("--yes")
    assert (state, "has no connection document of 'orders'" in said) == (REFUSED, True), said
    assert shell.run("clients", "set", "orders", blue, "--new", "--yes").state == DONE
    another = ConnectionDocument(service_url=str(on_blue.connection.service_url))
    documents.publish("billing", another, cluster="blue", by="a test", why="", expected=0, namespaces=(str(other),))
    client = await asyncio.to_thread(open_client, on_blue.connection)
    try:
        for name in (namespace, other):
            client.create_producer(str(TopicName(name, "events")))
        said = ""
        async with asyncio.timeout(90):
            # Brokers renew the lists of their topics once a minute.
            while "also use" not in said:
                await asyncio.sleep(1)
                said = (await asyncio.to_thread(move, "--dry-run"))[1]
        state, said = await asyncio.to_thread(move, "--yes")
        named = re.search(rf'producer "\S+" \(.*\) also use {other} \(of the group billing\)', said)
        assert (state, bool(named)) == (REFUSED, True), said
    finally:
        await asyncio.to_thread(client.close)
    reading = await asyncio.to_thread(open_client, on_blue.connection)
    try:
        # Its position is a place on blue: on green it would skip messages, or get them again.
        reader = reading.create_reader(str(TopicName(other, "events")), pulsar.MessageId.earliest)
        state, said = await asyncio.to_thread(move, "--yes", "--accept-shared-clients", spaces=other)
        assert (state, "only a reader has its position" in said) == (REFUSED, True), said
        state, said = await asyncio.to_thread(
            move, "--dry-run", "--accept-shared-clients", "--accept-readers", spaces=other
        )
        assert (state, "only a reader has its position" in said) == (DONE, True), said
        reader.close()
    finally:
        await asyncio.to_thread(reading.close)
    names = [await on_blue.cluster_name(), await on_green.cluster_name()]
    await on_green.post(f"/namespaces/{namespace.path}/replication", names[1:])
    state, said = await asyncio.to_thread(move, "--yes", "--accept-shared-clients")
    advice = f"first: pulsar-fleet replicate {blue} {green} --namespaces {namespace}"
    assert (state, advice in said) == (REFUSED, True), said
    for words, status, text in (
        (("--group", "Orders"), USAGE, "is not a name of a group"),
        (("--service-url", "http://green:8080"), USAGE, "is not a service URL"),
    ):
        state, said = await asyncio.to_thread(move, *words, "--yes", "--accept-shared-clients", spaces=other)
        assert (state, text in said) == (status, True), said
    assert documents.newest("orders") == 1
    assert (await on_green.stats(topic))["subscriptions"] == {}


class Consuming:
    """A consumer in a process of its own that acknowledges what it gets; `url` is fixed, or a document's."""

    PROGRAM = """
import sys, pulsar
from pulsar_fleet.clients.provider import DocumentProvider
url, topic = sys.argv[1:]
where = DocumentProvider(url, poll_seconds=0.2) if url.startswith("file:") else url
client = pulsar.Client(where, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
consumer = client.subscribe(topic, "application", consumer_type=pulsar.ConsumerType.Shared)
print("connected", flush=True)
while True:
    message = consumer.receive()
    print(message.data().decode(), flush=True)
    consumer.acknowledge(message)
"""

    def __init__(self, url: str, topic: TopicName, shell: Shell) -> None:
        command = [sys.executable, "-c", self.PROGRAM, url, str(topic)]
        self._process = subprocess.Popen(command, env=shell.environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "connected\n"

    def kill(self) -> set[bytes]:
        """What it had got."""
        self._process.kill()
        return {line.encode() for line in self._process.communicate()[0].splitlines()}


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_nothing_is_lost_when_clients_die_start_or_stay_meanwhile(
    shell: Shell,
    documents: ConnectionDocuments,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    namespace = new_namespace()
    topic = await make_linked_topic(on_blue, on_green, namespace)
    blue, green = shell.sides
    assert shell.run("clients", "set", "orders", blue, "--new", "--yes").state == DONE
    document = shell.folder / "clients" / "orders.json"
    with LiveApplication(document, topic).running() as live:
        dying = await asyncio.to_thread(Consuming, document.as_uri(), topic, shell)
        staying = await asyncio.to_thread(Consuming, str(on_blue.connection.service_url), topic, shell)
        await live.publish_more(200)
        words = ("--group", "orders", "--namespaces", str(namespace), "--arrival-minutes", "1", "--yes")
        moving = asyncio.create_task(asyncio.to_thread(shell.run, "move-clients", blue, green, *words))
        async with asyncio.timeout(60):
            # In the middle of the move: subscriptions are on green, and the document leads to blue.
            while "application" not in (await on_green.stats(topic))["subscriptions"]:
                await asyncio.sleep(0.05)
        got = dying.kill()
        async with asyncio.timeout(60):
            while documents.newest("orders") == 1:
                await asyncio.sleep(0.05)
        starting = await asyncio.to_thread(Consuming, document.as_uri(), topic, shell)
        moved = await moving
        # It is named, and gets on blue what the others get on green.
        assert (moved.state, "1 on blue: consumer " in moved.err) == (PARTLY, True), moved.err
        before = len(live.sent)
        await live.publish_more(200)
        await asyncio.sleep(2)
        stayed = staying.kill()
        log.info("%s of 200 came to the one that stayed too", len(stayed & {*live.sent[before:]}))
        assert stayed & {*live.sent[before:]}
        got |= starting.kill() | stayed
        async with asyncio.timeout(30):
            while live.lost - got:
                await asyncio.sleep(0.2)
    assert live.lost - got == set()
    assert set(live.sent) <= got | live.received.keys()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_commands_of_the_page_move_an_application_and_lead_it_back(shell: Shell, tmp_path: Path) -> None:
    prepare, move = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    environment = {**shell.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop(CLIENTS_VARIABLE, None)

    def run(text: str) -> str:
        said = subprocess.run(
            ["bash", "-ec", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
        )
        assert said.returncode == 0, f"{said.stdout}{said.stderr}"
        return said.stdout

    try:
        # Of the sandbox the ports are known when it has begun; the shell that asks is none of a person.
        begin, setup = prepare.split("BLUE=", 1)
        run(begin.replace(". .venv/bin/activate\n", ""))
        status = json.loads(run("pulsar-fleet sandbox status --folder sandbox --json"))["clusters"]
        addresses = [cluster["admin_urls"][0] for cluster in status]
        named = "BLUE={} GREEN={}\n".format(*addresses)
        lines = [line for line in setup.splitlines()[1:] if "http.server" not in line]
        run(named + "\n".join(lines).replace("--new", "--new --yes"))
        topic = TopicName(NamespaceName("acme", "orders"), "events")
        with LiveApplication(tmp_path / "documents" / "orders.json", topic).running() as live:
            await live.publish_more(100)
            replicate, to_green, back = (line.split("    #")[0] for line in move.splitlines()[:3])
            documents = f"export PULSAR_FLEET_CLIENTS=$PWD/documents\n{named}"
            await asyncio.to_thread(run, f"{documents}{replicate} --yes")
            moved = await asyncio.to_thread(run, f"{documents}{to_green} --yes")
            await live.publish_more(100)
            (printed,) = {*re.findall(r"pulsar-fleet return-clients \S+(?=`)", moved)}
            assert printed.split()[:2] == back.split()[:2]
            await asyncio.to_thread(run, f"{documents}{printed} --yes")
            await live.publish_more(100)
        assert live.lost == set()
    finally:
        run("pulsar-fleet sandbox down --folder sandbox")


async def unread(connection: ClusterConnection, topic: TopicName, subscription: str) -> set[bytes]:
    """Everything that a subscription delivers."""

    def drain() -> set[bytes]:
        client, got = open_client(connection), set[bytes]()
        consumer = client.subscribe(str(topic), subscription)
        while True:
            try:
                message = consumer.receive(3_000)
            except pulsar.Timeout:
                client.close()
                return got
            got.add(message.data())
            consumer.acknowledge(message)

    return await asyncio.to_thread(drain)
