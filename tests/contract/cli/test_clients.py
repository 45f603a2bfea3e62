"""`pulsar-fleet clients`: live applications move to the other cluster and back, and none of their messages is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from tests.support.live_application import LiveApplication
from tests.support.replication import know_each_other, replicate, wait_linked
from tests.support.shell import Said, Shell

from pulsar_fleet.clients.document import TOKEN_PLUGIN
from pulsar_fleet.clients.provider import DocumentProvider
from pulsar_fleet.clients.store import ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_sandbox import Sandbox
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, jars_for

DONE, ERROR, USAGE, DIFFERENT, REFUSED = 0, 1, 2, 3, 4


async def replicated_both_ways(on_blue: AdminClient, on_green: AdminClient, name: NamespaceName) -> TopicName:
    """An empty topic on both clusters, whose messages each copies to the other."""
    await know_each_other(on_blue, on_green)
    await replicate(on_blue, on_green, name)
    topic, names = TopicName(name, "events"), [await on_blue.cluster_name(), await on_green.cluster_name()]
    # The replicator creates it on green.
    await on_blue.create_topic(topic)
    await on_green.post(f"/namespaces/{name.path}/replication", names)
    await wait_linked(on_blue, [topic], names[1])
    await wait_linked(on_green, [topic], names[0])
    return topic


async def wait_connected(admin: AdminClient, topic: TopicName) -> None:
    """Until the producer and the consumer of the application are there."""
    async with asyncio.timeout(60):
        while True:
            stats = await admin.stats(topic)
            consumers = (stats["subscriptions"].get("application") or {}).get("consumers")
            if consumers and [one for one in stats["publishers"] if not one["producerName"].startswith("pulsar.repl")]:
                return
            await asyncio.sleep(0.1)


async def test_live_applications_move_there_and_back_and_lose_nothing(
    shell: Shell,
    documents: ConnectionDocuments,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    topic = await replicated_both_ways(on_blue, on_green, new_namespace())
    blue, green = shell.sides
    made = shell.run("clients", "set", "orders", blue, "--new", "--yes", "--json")
    assert (made.state, made.document["version"], made.document["changed"]) == (DONE, 1, True), made.err
    with LiveApplication(shell.folder / "clients" / "orders.json", topic, replicated=True).running() as live:
        await wait_connected(on_blue, topic)
        for side, admin in ((green, on_green), (blue, on_blue)):
            moved = await asyncio.to_thread(shell.run, "clients", "set", "orders", side, "--yes", "--why", "a test")
            assert moved.state == DONE, moved.err
            await wait_connected(admin, topic)
            await live.publish_more(1)
    assert live.lost == set()
    assert len(live.sent) > 100
    assert [one.why for one in documents.history("orders")] == ["a test", "a test", ""]
    asked = [run for run in Ledger.open().newest_runs(9) if run.procedure == "set_clients"]
    assert {run.state for run in asked} == {"succeeded"}
    shown = shell.run("clients", "show", "orders")
    assert (shown.state, "version 3" in shown.out) == (DONE, True)


async def test_clients_stay_where_they_are_whatever_happens_to_the_files(
    shell: Shell,
    documents: ConnectionDocuments,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    served: str,
) -> None:
    topic = await replicated_both_ways(on_blue, on_green, new_namespace())
    for side, words in zip(shell.sides, (("--new",), ()), strict=True):
        assert shell.run("clients", "set", "orders", side, *words, "--yes").state == DONE
    folder = Path(documents.folder)
    file, record = folder / "orders.json", folder / "orders" / "published.json"
    contents = {path: path.read_text() for path in (file, record)}
    reader = pulsar.Client(DocumentProvider(file.as_uri(), poll_seconds=0.1))
    producer = await asyncio.to_thread(reader.create_producer, str(topic))
    with LiveApplication(f"{served}/orders", topic).running() as live:

        async def go_on() -> None:
            # Several reads of the document later.
            await live.publish_more(60)
            await asyncio.to_thread(producer.send, b"of the file")
            assert [
                one for one in (await on_blue.stats(topic))["publishers"] if "repl" not in one["producerName"]
            ] == []

        # Cut, empty, an address that no client understands, away.
        for text in (contents[file][:20], "", '{"serviceUrl": "http://green:8080"}', None):
            file.unlink() if text is None else file.write_text(text)
            await go_on()
        # An old one leads who reads the file; Airflow's server does not have it.
        await asyncio.to_thread(reader.close)
        file.write_text(json.dumps({"serviceUrl": on_blue.connection.service_url}))
        await live.publish_more(60)
        record.write_text(contents[record][:40])
        await live.publish_more(60)
        folder.rename(folder.with_name("away"))
        await live.publish_more(60)
        assert (await on_green.stats(topic))["subscriptions"]["application"]["consumers"]
        folder.with_name("away").rename(folder)
        record.write_text(contents[record])
    assert live.lost == set()
    assert shell.run("clients", "show", "orders").state == DIFFERENT


PROGRAM = Path(__file__).with_name("Followed.java")


@pytest.mark.long
async def test_a_java_client_follows_the_document_of_the_server(
    shell: Shell,
    documents: ConnectionDocuments,
    clusters: Sandbox,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    served: str,
) -> None:
    topic = await replicated_both_ways(on_blue, on_green, new_namespace())
    blue, green = shell.sides
    assert shell.run("clients", "set", "orders", blue, "--new", "--yes").state == DONE
    path = f"{jars_for(DEFAULT_VERSION)}/*:{shell.folder}"
    subprocess.run(["javac", "-cp", path, "-d", shell.folder, PROGRAM], check=True, timeout=60)
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, PROGRAM.stem, clusters["blue"].service_url]
    running = subprocess.Popen(
        [*words, f"{served}/orders", "t0", str(topic)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        await wait_connected(on_blue, topic)
        for side, admin in ((green, on_green), (blue, on_blue)):
            assert (await asyncio.to_thread(shell.run, "clients", "set", "orders", side, "--yes")).state == DONE
            await wait_connected(admin, topic)
        out, _ = await asyncio.to_thread(running.communicate, "\n", 120)
    finally:
        running.kill()
    sent, lost = map(int, out.split()[-2:])
    assert (sent > 100, lost) == (True, 0)


def test_what_nobody_may_follow_is_refused_and_the_old_document_stays(
    shell: Shell, documents: ConnectionDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue, green = shell.sides
    # Of the cluster for which the shell was set up: it must not be published as the address of another one.
    shell.environment["PULSAR_FLEET_SOURCE_SERVICE_URL"] = "pulsar://127.0.0.1:9"
    made = shell.run("clients", "set", "orders", blue, "--new", "--yes")
    assert (made.state, "Change the default of the applications" in made.out) == (DONE, True), made.err
    first = documents.published("orders")
    assert first is not None
    assert (first.cluster, first.document.service_url.endswith(":9")) == ("blue", False)
    on_blue = first.document.service_url
    tls = on_blue.replace("pulsar:", "pulsar+ssl:")
    for words, state, said in (
        (("orders", "http://127.0.0.1:9"), ERROR, "127.0.0.1:9"),
        (("orders", green, "--service-url", "http://green:8080"), USAGE, "is not a service URL"),
        (("orders", green, "--service-url", "pulsar://127.0.0.1:9"), REFUSED, "It is not known that"),
        (("orders", green, "--service-url", on_blue), REFUSED, "It is not known that"),
        (("orders", green, "--service-url", tls, "--unverified"), USAGE, "differ in TLS"),
        (("orders", green, "--auth-plugin", "T", "--auth-parameters", "token:e"), USAGE, "is no class"),
        (("Orders", green), USAGE, "is not a name of a group"),
        (("ordres", green), USAGE, "add --new"),
        (("orders", "pulsar_none"), USAGE, "pulsar_none"),
    ):
        refused = shell.run("clients", "set", *words, "--yes")
        assert (refused.state, said in refused.err) == (state, True), refused.err
    assert shell.run("clients", "set", "orders", green).state == REFUSED
    planned = shell.run("clients", "set", "orders", green, "--dry-run", "--json")
    assert (planned.state, planned.document["changed"]) == (DONE, False)
    same = shell.run("clients", "set", "orders", blue, "--yes", "--json")
    assert (same.state, same.document["changed"]) == (DONE, False)
    assert documents.newest("orders") == 1
    (shell.folder / "clients" / "orders.json").write_text("{}")
    edited = shell.run("clients", "show")
    assert (edited.state, "which is not what was published last" in edited.err) == (DIFFERENT, True)
    assert shell.run("clients", "set", "orders", blue, "--yes").state == DONE
    assert shell.run("clients", "show").state == DONE
    assert shell.run("clients", "show", "none").state == ERROR
    # Its admin API does not answer, and its brokers do: clients can be moved back all the same.
    away = ("http://127.0.0.1:9", "--service-url", on_blue, "--unverified", "--dry-run", "--json")
    assert shell.run("clients", "set", "orders", *away).state == DONE
    # One of two hosts is another cluster's.
    planned = shell.run("clients", "set", "orders", green, "--dry-run", "--json")
    away = ("http://127.0.0.1:9", "--service-url", on_blue)
    assert "--unverified" in shell.run("clients", "set", "orders", *away, "--yes").err
    both = f"{on_blue},{planned.document['document']['serviceUrl'].removeprefix('pulsar://')}"
    mixed = shell.run("clients", "set", "orders", green, "--service-url", both, "--yes")
    assert (mixed.state, "answers" in mixed.err) == (REFUSED, True), mixed.err
    (shell.folder / "clients" / "orders" / "published.json").write_text("{")
    damaged = shell.run("clients", "show", "orders", "--json")
    assert (damaged.state, len(damaged.document["history"])) == (DIFFERENT, 2)
    assert shell.run("clients", "set", "orders", blue, "--yes").state == DONE


def test_files_of_a_cluster_stay_with_it_and_the_return_is_never_refused(
    shell: Shell, documents: ConnectionDocuments
) -> None:
    blue, green = shell.sides
    plugin = ("--auth-plugin", TOKEN_PLUGIN, "--auth-parameters")

    def set_(side: str, *words: str) -> Said:
        return shell.run("clients", "set", "orders", side, *words, "--yes")

    assert set_(blue, "--new").state == DONE
    # A Java client that comes back would keep the token of the other cluster, so it does not go.
    added = set_(green, *plugin, "file:///green/token")
    assert (added.state, "a Java client that comes back would keep it" in added.err) == (USAGE, True)
    # As it says: to the cluster that clients are on it may be added.
    assert set_(blue, *plugin, "file:///blue/token").state == DONE
    kept = set_(green)
    assert (kept.state, "a Java client would keep it on the other cluster" in kept.err) == (USAGE, True)
    moved = set_(green, *plugin, "file:///green/token")
    assert (moved.state, "file:///blue/token → file:///green/token" in moved.out) == (DONE, True), moved.err
    # Back needs no path from memory.
    assert set_(blue).state == DONE
    published = documents.published("orders")
    assert published is not None
    assert (published.version, published.document.auth_parameters) == (4, "file:///blue/token")
    assert set_(blue, "--restart-java").state == DONE
    published = documents.published("orders")
    assert published is not None
    assert published.document.auth_parameters == ""


def test_applications_get_the_addresses_that_the_connection_has_for_them(
    shell: Shell, documents: ConnectionDocuments, green: ClusterConnection
) -> None:
    inside = str(green.service_url).replace("localhost", "127.0.0.1")
    outside = inside.replace("127.0.0.1", "localhost")
    extra = {"service_url": inside, "client_urls": [green.admin_url, outside]}
    named = {"conn_type": "pulsar", "host": green.admin_url, "extra": extra}
    shell.environment["AIRFLOW_CONN_PULSAR_INSIDE"] = json.dumps(named)
    assert shell.run("clients", "set", "orders", "pulsar_inside", "--new", "--yes").state == DONE
    published = documents.published("orders")
    assert published is not None
    assert published.document.service_url == outside
