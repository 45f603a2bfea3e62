"""The cluster that clients were moved to dies: they come back without it, and what it had comes when it does."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.fleets import connection, shell_of
from tests.support.kinds import StartClusters
from tests.support.live_application import LiveApplication, make_linked_topic, unread
from tests.support.replication import FOREVER, wait_linked
from tests.support.shell import Said, Shell

from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.messages.clients.read import open_reader
from pulsar_sandbox import Sandbox

# How long a move stands while clusters fail: an hour shows more than the minutes of the long run.
MINUTES = float(os.environ.get("PULSAR_FLEET_REVERSIBLE_MINUTES", "2"))
pytestmark = [pytest.mark.long, pytest.mark.timeout(600 + 60 * MINUTES)]
NAMES = ("blue", "green")
log = logging.getLogger(__name__)
DONE, DIFFERENT, REFUSED, INCONCLUSIVE = 0, 3, 4, 6


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
        await wait_linked(admins[1], [topic], "blue")
        async with asyncio.timeout(60):
            while (late := await read_late(shell, back.document["run"])).state == INCONCLUSIVE:
                await asyncio.sleep(1)
        assert late.state in (DONE, DIFFERENT), late.err
        await live.publish_more(200)
        async with asyncio.timeout(60):
            while live.lost:
                await asyncio.sleep(0.5)
    assert live.lost == set()


async def test_clients_are_led_away_from_a_cluster_that_was_killed(
    sandbox: Sandbox, shell: Shell, admins: tuple[AdminClient, AdminClient]
) -> None:
    namespace = NamespaceName("acme9", "orders")
    topic = await make_linked_topic(*admins, namespace)
    documents = ConnectionDocuments.open(shell.environment[CLIENTS_VARIABLE])
    assert shell.run("clients", "set", "orders", "blue", "--new", "--yes").state == DONE
    words = ("fail-over", *NAMES, "--group", "orders", "--select", str(namespace))
    with LiveApplication(Path(documents.folder) / "orders.json", topic, replicated=True).running() as live:
        await live.publish_more(300)
        alive = await asyncio.to_thread(shell.run, *words, "--yes")
        assert (alive.state, "pulsar-fleet move-clients blue green --group orders" in alive.err) == (REFUSED, True)
        # Nothing has moved.
        assert documents.newest("orders") == 1
        # What blue cannot replicate any more, and clients have acknowledged.
        green = psutil.Process(sandbox["green"].pids[0])
        green.suspend()
        before = len(live.sent)
        await live.publish_more(50)
        # What no broker replicates, and its client makes on green, by default behind everything.
        await admins[0].create_subscription(topic, "audit", "earliest")
        sandbox["blue"].kill()
        stayed = {*live.sent[before:]}
        green.resume()
        dry = await asyncio.to_thread(shell.run, *words, "--dry-run")
        assert (dry.state, "blue does not answer" in dry.out, documents.newest("orders")) == (DONE, True, 1), dry.err
        moved = await asyncio.to_thread(shell.run, *words, "--yes", "--json")
        assert moved.state == DONE, moved.err
        await live.publish_more(300)
        run = moved.document["run"]
        await admins[1].create_subscription(topic, "audit", "latest")
        unknown = await read_late(shell, run)
        assert (unknown.state, unknown.document["to_come"]) == (INCONCLUSIVE, None), unknown.err
        assert f"pulsar-fleet return-clients {run}" in moved.document["next"]
        sandbox["blue"].restart()
        await wait_linked(admins[0], [topic], "green")
        async with asyncio.timeout(60):
            while (late := await read_late(shell, run)).state == INCONCLUSIVE:
                await asyncio.sleep(1)
        assert (late.state, late.document["unread"]) == (DIFFERENT, {}), late.err
        assert stayed <= await late_contents(admins[1], topic, late.document)
        back = await asyncio.to_thread(shell.run, "return-clients", run, "--yes", "--json")
        assert back.state == DONE, back.err
        # `application` too: of one that never had its position on green nobody knows what its client skipped there.
        assert back.document["positions"]["stayed"] == [f"{name} of {topic}" for name in ("application", "audit")]
        await live.publish_more(200)
        async with asyncio.timeout(60):
            while live.lost:
                await asyncio.sleep(0.5)
    assert live.lost == set()
    await wait_sent(admins[1], topic, "blue")
    assert await unread(admins[0], str(topic), "audit", {*live.sent}) == {*live.sent}


async def wait_sent(admin: AdminClient, topic: TopicName, other: str) -> None:
    """Until the other cluster has everything."""
    async with asyncio.timeout(90):
        while True:
            link = (await admin.stats(topic))["replication"][other]
            if link["connected"] and not link["replicationBacklog"]:
                return
            await asyncio.sleep(0.5)


async def read_late(shell: Shell, run: str) -> Said:
    return await asyncio.to_thread(shell.run, "late-messages", run, "--json")


async def late_contents(admin: AdminClient, topic: TopicName, late: JsonObject) -> set[bytes]:
    """The contents of the messages that are named, and that their number is right."""

    def read() -> dict[str, bytes]:
        with open_reader(admin.connection, str(topic)) as messages:
            return {":".join(message.message_id.split(":")[:2]): message.content for message in messages}

    stored = await asyncio.to_thread(read)
    assert late["messages"] == len(late["entries"])
    return {stored[entry["position"]] for entry in late["entries"]}


async def test_the_way_back_is_whole_after_faults(
    sandbox: Sandbox, shell: Shell, admins: tuple[AdminClient, AdminClient]
) -> None:
    dice = random.Random("faults")
    namespace = NamespaceName("acme7", "orders")
    topic = await make_linked_topic(*admins, namespace)
    for admin in admins:
        # Both keep everything: a proof can compare it.
        await admin.post(f"/namespaces/{namespace.path}/retention", FOREVER)
    documents = ConnectionDocuments.open(shell.environment[CLIENTS_VARIABLE])
    assert shell.run("clients", "set", "orders", "blue", "--new", "--yes").state == DONE
    with LiveApplication(Path(documents.folder) / "orders.json", topic, replicated=True).running() as live:
        await live.publish_more(100)
        words = ("move-clients", *NAMES, "--group", "orders", "--namespaces", str(namespace), "--yes", "--json")
        moved = await asyncio.to_thread(shell.run, *words)
        assert moved.state == DONE, moved.err
        faults, end = Counter[str](), time.monotonic() + 60 * MINUTES
        while time.monotonic() < end:
            name, fault = dice.choice(NAMES), dice.choice(("killed", "stopped", "unloaded"))
            faults[f"{name} {fault}"] += 1
            await disturb(sandbox, name, fault, namespace)
            await live.publish_more(100)
        log.info("%s, %s sent", dict(faults), len(live.sent))
        for admin, other in zip(admins, reversed(NAMES), strict=True):
            await wait_linked(admin, [topic], other)
        said = await asyncio.to_thread(shell.run, "doctor", *NAMES, "--select", str(namespace), "--json")
        (group,) = said.document["returns"]
        assert [*group["replicators"]["counts"]] == ["healthy"], group
        back = await asyncio.to_thread(shell.run, "return-clients", moved.document["run"], "--yes", "--json")
        assert back.state == DONE, back.err
        await live.publish_more(100)
        async with asyncio.timeout(60):
            while live.lost:
                await asyncio.sleep(0.5)
    assert live.lost == set()
    for admin, other in zip(admins, reversed(NAMES), strict=True):
        await wait_sent(admin, topic, other)
    proof = await asyncio.to_thread(shell.run, "verify-replication", *NAMES, "--select", str(namespace), "--json")
    # A replicator that was killed sends again what it had not noted as sent, and nobody removes the copy.
    topics = [row for one in proof.document["compared"] for space in one["namespaces"] for row in space["topics"]]
    found = Counter((difference["kind"], difference["cause"]) for row in topics for difference in row["differences"])
    assert (len(topics), {*found} - {("extra", "duplicated")}) == (2, set()), found


async def disturb(sandbox: Sandbox, name: str, fault: str, namespace: NamespaceName) -> None:
    cluster = sandbox[name]
    match fault:
        case "killed":
            cluster.kill()
            await asyncio.sleep(2)
            await asyncio.to_thread(cluster.restart)
        case "stopped":
            process = psutil.Process(cluster.pids[0])
            process.suspend()
            await asyncio.sleep(6)
            process.resume()
        case _:
            async with AdminClient(connection(cluster)) as admin:
                await admin.put(f"/namespaces/{namespace.path}/unload")
