"""Replication between two clusters: its forms, its refusals, and its undo."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pulsar
import pytest
from tests.support.applications import wait_copied
from tests.support.data_centres import (
    finding_ids,
    findings_text,
    make_origin,
    opened,
    plan,
    publish_typed,
    replicate,
    request_of,
    undo,
    wait_sent,
)
from tests.support.remedies import calls, send
from tests.support.replication import know_each_other

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.links.partition_stats import required_stats
from pulsar_fleet.preflight.findings import Severity
from pulsar_fleet.replication import steps
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot

REDACTOR = Redactor(b"a key of the tests")
Connections = dict[str, ClusterConnection]


@pytest.fixture
def connections(blue: ClusterConnection, green: ClusterConnection, records: Path) -> Connections:
    return {"blue": blue, "green": green}


@pytest.fixture
def admins(on_blue: AdminClient, on_green: AdminClient) -> dict[str, AdminClient]:
    return {"blue": on_blue, "green": on_green}


def publish(connection: ClusterConnection, topic: TopicName, texts: list[str]) -> None:
    client = open_client(connection)
    try:
        producer = client.create_producer(str(topic))
        for text in texts:
            producer.send(text.encode(), partition_key=text)
    finally:
        client.close()


def texts_of(connection: ClusterConnection, topic: TopicName) -> list[str]:
    client = open_client(connection)
    try:
        consumer = client.subscribe(str(topic), "reads", initial_position=pulsar.InitialPosition.Earliest)
        texts = []
        while True:
            try:
                message = consumer.receive(1500)
            except pulsar.Timeout:
                return sorted(texts)
            texts.append(message.data().decode())
            consumer.acknowledge(message)
    finally:
        client.close()


async def make_history(
    connection: ClusterConnection, admin: AdminClient, namespace: NamespaceName
) -> tuple[tuple[TopicName, TopicName], list[str]]:
    """The topics of an origin, and what each of them stores."""
    topics, old = await make_origin(admin, namespace), [f"old-{number}" for number in range(40)]
    for topic in topics:
        await asyncio.to_thread(publish, connection, topic, old)
    return topics, old


async def test_one_way_copies_the_history_and_nothing_comes_back(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    (events, audit), old = await make_history(connections["blue"], admins["blue"], namespace)
    request = request_of("blue", receive_only=["green"], namespaces=[str(namespace)], history=True)
    done = await replicate(connections, request, "one-way")
    assert done.links == 4
    await asyncio.to_thread(publish, connections["blue"], events, ["new"])
    await asyncio.to_thread(publish, connections["green"], events, ["of-green"])
    await wait_copied(admins["blue"], [*events.partitions(3), audit], "green")
    assert await asyncio.to_thread(texts_of, connections["green"], events) == sorted([*old, "new", "of-green"])
    assert await asyncio.to_thread(texts_of, connections["green"], audit) == sorted(old)
    assert await asyncio.to_thread(texts_of, connections["blue"], events) == sorted([*old, "new"])

    again = await replicate(
        connections, request_of("blue", receive_only=["green"], namespaces=[str(namespace)]), "again"
    )
    assert again.plan.changes == 0


async def test_a_history_that_exceeds_a_quota_of_its_source_is_refused(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    """Its cursor would be the backlog by which brokers refuse producers; the printed call lifts the quota."""
    namespace, blue = new_namespace(), admins["blue"]
    _, audit = (await make_history(connections["blue"], blue, namespace))[0]
    quota = {"limitSize": 1, "limitTime": -1, "policy": "producer_exception"}
    await blue.post(f"/{audit.path}/backlogQuota", quota, backlogQuotaType="destination_storage")
    request = request_of("blue", receive_only=["green"], namespaces=[str(namespace)], history=True)
    done = await plan(connections, request, "quota")
    (finding,) = (row for row in done.planned.findings if row.id == "copy-exceeds-quota")
    assert (finding.severity, finding.resource) == (Severity.BLOCKER, str(audit))
    assert "copy-exceeds-quota" not in finding_ids(
        await plan(connections, replace(request, history=False), "without-history")
    )
    for _, call in calls(finding.call):
        await send(blue, call)
    assert "copy-exceeds-quota" not in finding_ids(await plan(connections, request, "lifted"))


async def test_topics_of_applications_with_two_underscores_replicate(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    await make_origin(admins["blue"], namespace)
    heartbeat, old = TopicName(namespace, "__debezium-heartbeat.fulfillment"), [f"old-{number}" for number in range(10)]
    await asyncio.to_thread(publish, connections["blue"], heartbeat, old)
    request = request_of("blue", receive_only=["green"], namespaces=[str(namespace)], history=True)
    assert (await replicate(connections, request, "underscores")).links == 5
    await wait_copied(admins["blue"], [heartbeat], "green")
    assert await asyncio.to_thread(texts_of, connections["green"], heartbeat) == sorted(old)


async def test_a_dry_run_changes_nothing_and_an_undo_restores_every_policy(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    # Data that the run creates cannot be taken away again while tenants of other tests allow the cluster.
    await know_each_other(admins["blue"], admins["green"])
    events, audit = await make_origin(admins["blue"], namespace)
    await admins["blue"].create_subscription(events, "billing")
    await admins["blue"].post_schema(audit, {"type": "STRING", "schema": "", "properties": {}})
    request = request_of(
        "blue",
        "green",
        namespaces=[str(namespace)],
        deduplication=True,
        replicated_subscriptions=True,
        messages_per_second=500,
    )
    before = await snapshots(admins, namespace)
    await plan(connections, request, "dry")
    assert await snapshots(admins, namespace) == before
    done = await replicate(connections, request, "run")
    documents = [await admin.namespace(namespace) for admin in admins.values()]
    assert [document["deduplicationEnabled"] for document in documents if document] == [True, True]
    rates = [(document or {})["replicatorDispatchRate"] for document in documents]
    assert [rate[name]["dispatchThrottlingRateInMsg"] for rate, name in zip(rates, admins, strict=True)] == [500, 500]
    flags = await admins["blue"].get(f"{events.subscription_path('billing')}/replicatedSubscriptionStatus")
    assert {*flags.values()} == {True}

    await undo(done, admins)
    assert await snapshots(admins, namespace) == before


async def snapshots(admins: dict[str, AdminClient], namespace: NamespaceName) -> list[object]:
    """Everything about the namespace and its tenant."""
    taken: list[Snapshot] = [
        await collect(admin, Selection.parse([namespace.tenant]), redactor=REDACTOR) for admin in admins.values()
    ]
    return [
        (
            state.tenants,
            state.namespaces,
            state.topics,
            state.topic_policies,
            _flags(state),
            [row.schema for row in state.schemas],
        )
        for state in taken
    ]


def _flags(snapshot: Snapshot) -> set[tuple[str, str, bool]]:
    return {(row.partition, row.name, row.replicated) for row in snapshot.subscriptions}


@pytest.mark.long
async def test_single_topics_are_replicated_by_lists_of_their_own(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    events, audit = await make_origin(admins["blue"], namespace)
    done = await replicate(connections, request_of("blue", "green", topics=[str(events)]), "topics")
    assert done.links == 6
    for topic in (events, audit):
        await asyncio.to_thread(publish, connections["blue"], topic, ["one"])
    await asyncio.to_thread(publish, connections["green"], events, ["two"])
    await wait_sent(admins, events.partitions(3), ["blue", "green"])
    for name in ("blue", "green"):
        assert await asyncio.to_thread(texts_of, connections[name], events) == ["one", "two"]
        assert (await admins[name].namespace(namespace) or {})["replication_clusters"] == [name]
    stats = await required_stats(admins["blue"], [audit])
    assert not stats[audit].links


async def test_what_would_prevent_replication_stops_the_plan(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    _, audit = await make_origin(admins["blue"], namespace)
    await make_origin(admins["green"], namespace)
    for connection in connections.values():
        await asyncio.to_thread(publish, connection, audit, ["on both"])
    for admin, count in ((admins["blue"], 5), (admins["green"], 4)):
        await admin.create_partitioned_topic(TopicName(namespace, "differs"), count)
    await admins["blue"].create_partitioned_topic(TopicName(namespace, "shape"), 2)
    await admins["green"].create_topic(TopicName(namespace, "shape"))
    for admin, kind in ((admins["blue"], "STRING"), (admins["green"], "JSON")):
        text = "" if kind == "STRING" else '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
        await admin.post_schema(audit, {"type": kind, "schema": text, "properties": {}})
    request = request_of("blue", "green", namespaces=[str(namespace)], history=True)
    done = await plan(connections, request, "blocked")
    assert finding_ids(done) >= {
        "partitions-differ",
        "partitioned-on-one-side",
        "schema-incompatible",
        "history-on-existing-topic",
    }
    with pytest.raises(PreconditionFailed, match="partitions-differ"):
        await plan(
            connections,
            request_of(
                "blue",
                "green",
                namespaces=[str(namespace)],
                waivers=[{"id": "partitions-differ", "who": "Ada", "why": "to see what happens"}],
            ),
            "waived",
        )


@pytest.mark.cluster
async def test_a_cluster_that_the_run_does_not_name_is_never_cut(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace, third = new_namespace(), "third"
    await make_origin(admins["blue"], namespace)
    await admins["blue"].put_cluster(
        third, {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
    )
    try:
        await admins["blue"].post(f"/tenants/{namespace.tenant}", {"allowedClusters": ["blue", third]})
        await admins["blue"].post(f"/namespaces/{namespace.path}/replication", ["blue", third])
        done = await plan(connections, request_of("blue", "green", namespaces=[str(namespace)]), "unnamed")
        assert "list-names-other-cluster" in finding_ids(done), findings_text(done)
    finally:
        await admins["blue"].post(f"/namespaces/{namespace.path}/replication", ["blue"])
        await admins["blue"].delete(f"/clusters/{third}")


async def test_names_and_settings_that_cannot_be_are_refused_before_any_change(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    for settings, words in (
        ({"namespaces": [str(namespace)], "receive_only": ["blue"]}, "named twice"),
        ({}, "either 'namespaces' or 'topics'"),
        ({"topics": ["persistent://a/b/c-partition-1"]}, "not one partition"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            request_of("blue", "green", **settings)
    with pytest.raises(InvalidRequest, match="at least two"):
        request_of("blue", namespaces=[str(namespace)])
    with pytest.raises(NotFound, match="No member"):
        await plan(connections, request_of("blue", "green", namespaces=[str(namespace)]), "missing")
    twice = {"blue": connections["blue"], "green": connections["blue"]}
    with pytest.raises(InvalidRequest, match="both lead to cluster 'blue'"):
        async with opened(twice, request_of("blue", "green", namespaces=["a/b"])):
            raise AssertionError


@pytest.mark.long
async def test_a_link_that_a_schema_stops_fails_the_run_although_it_is_connected(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    """The statistics say `connected: true`."""
    namespace = new_namespace()
    topic = TopicName(namespace, "typed")
    await make_origin(admins["blue"], namespace)
    request = request_of("blue", receive_only=["green"], namespaces=[str(namespace)])
    await replicate(connections, request, "first")
    # Green refuses every new schema; the client registers its own on blue only.
    await admins["green"].post(f"/namespaces/{namespace.path}/isAllowAutoUpdateSchema", False)
    await admins["green"].create_topic(topic)
    await asyncio.to_thread(publish_typed, connections["blue"], topic)
    async with opened(connections, request) as clusters:
        done = await plan(connections, request, "second")
        with pytest.raises(PreconditionFailed, match="connected, and sends nothing of its backlog"):
            await steps.confirm(clusters, done.planned, seconds=5)


@pytest.mark.long
async def test_the_history_begins_at_any_time(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    events, audit = await make_origin(admins["blue"], namespace)
    for topic in (events, audit):
        await asyncio.to_thread(publish, connections["blue"], topic, [f"early-{number}" for number in range(20)])
    await asyncio.sleep(0.5)
    since = datetime.now(UTC)
    await asyncio.sleep(0.5)
    late = [f"late-{number}" for number in range(20)]
    await asyncio.to_thread(publish, connections["blue"], events, late)
    settings = {"history": True, "history_since": since.isoformat(), "namespaces": [str(namespace)]}
    await replicate(connections, request_of("blue", "green", **settings), "since")
    await asyncio.to_thread(publish, connections["blue"], audit, ["new"])
    await wait_copied(admins["blue"], [*events.partitions(3), audit], "green")
    assert await asyncio.to_thread(texts_of, connections["green"], events) == sorted(late)
    assert await asyncio.to_thread(texts_of, connections["green"], audit) == ["new"]
    with pytest.raises(InvalidRequest, match="without a time zone"):
        request_of("blue", "green", namespaces=["a/b"], history=True, history_since="2026-11-21T08:00:00")


@pytest.mark.long
async def test_a_run_with_history_interrupted_after_the_contents_goes_on(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    """It has created the topics on the other cluster, and stored no list yet."""
    namespace = new_namespace()
    (events, audit), old = await make_history(connections["blue"], admins["blue"], namespace)
    request = request_of("blue", "green", namespaces=[str(namespace)], history=True)
    interrupted = await plan(connections, request, "interrupted")
    async with opened(connections, request) as clusters:
        await steps.apply_contents(clusters, interrupted.planned, request, interrupted.run)
    assert {row.name for row in (await snapshot(admins["green"], namespace)).topics} >= {str(events), str(audit)}

    done = await replicate(connections, request, "again")
    assert done.links == 8
    await wait_copied(admins["blue"], [*events.partitions(3), audit], "green")
    for topic in (events, audit):
        for name in ("green", "blue"):
            assert await asyncio.to_thread(texts_of, connections[name], topic) == sorted(old), (name, topic)


async def test_a_topic_empty_in_the_plan_and_used_by_now_gets_no_history(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    """Between the plan and its approval many hours may pass."""
    namespace = new_namespace()
    _, audit = await make_origin(admins["blue"], namespace)
    await make_origin(admins["green"], namespace)
    await asyncio.to_thread(publish, connections["blue"], audit, ["old"])
    request = request_of("blue", receive_only=["green"], namespaces=[str(namespace)], history=True)
    done = await plan(connections, request, "planned")
    assert not done.blockers, findings_text(done)
    await asyncio.to_thread(publish, connections["green"], audit, ["old"])
    async with opened(connections, request) as clusters:
        with pytest.raises(PreconditionFailed, match=r"changed since the plan.*\n.*history-on-existing-topic .*audit"):
            await steps.apply_contents(clusters, done.planned, request, done.run)
        # A step that goes on after it was cut asks once more.
        done.run.ledger.start_run(f"{done.run.id}/starts/blue", "replicate_namespaces", {})
        with pytest.raises(PreconditionFailed, match=r"audit was empty on blue or green when .* is used on both now"):
            await steps.start_links(clusters, done.planned, request, done.run)
    for name, admin in admins.items():
        assert (await admin.namespace(namespace) or {})["replication_clusters"] == [name]


@pytest.mark.parametrize("step", [steps.apply_contents, steps.start_links])
async def test_what_has_changed_since_the_plan_is_not_started(
    connections: Connections,
    admins: dict[str, AdminClient],
    new_namespace: Callable[[], NamespaceName],
    step: Callable[..., Awaitable[object]],
) -> None:
    """Partitions that differ by now, although no planned change is about them."""
    namespace = new_namespace()
    await make_origin(admins["blue"], namespace)
    await make_origin(admins["green"], namespace)
    request = request_of("blue", "green", namespaces=[str(namespace)])
    done = await plan(connections, request, "approved-late")
    assert not done.blockers, findings_text(done)
    await admins["green"].post(f"/{TopicName(namespace, 'events').path}/partitions", 4)
    await admins["blue"].create_topic(TopicName(namespace, "new"))
    async with opened(connections, request) as clusters:
        with pytest.raises(
            PreconditionFailed, match=r"changed since the plan.*\n.*partitions-differ .*events"
        ) as refused:
            await step(clusters, done.planned, request, done.run)
    assert f"{namespace}/new" not in str(refused.value)
    for name, admin in admins.items():
        assert (await admin.namespace(namespace) or {})["replication_clusters"] == [name]


async def snapshot(admin: AdminClient, namespace: NamespaceName) -> Snapshot:
    return await collect(admin, Selection.parse([namespace.tenant]), redactor=REDACTOR)


async def test_a_topic_that_may_have_stored_a_message_gets_no_history(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    """One message in one partition, a producer that has sent nothing yet, messages that were read and deleted."""
    namespace = new_namespace()
    events, audit = await make_origin(admins["blue"], namespace)
    await make_origin(admins["green"], namespace)
    await admins["green"].delete(f"/namespaces/{namespace.path}/retention")
    read, empty = TopicName(namespace, "read"), TopicName(namespace, "empty")
    for admin in admins.values():
        await admin.create_topic(read)
        await admin.create_topic(empty)
    for topic in (events, audit, read, empty):
        await asyncio.to_thread(publish, connections["blue"], topic, [f"old-{number}" for number in range(40)])
    await asyncio.to_thread(publish, connections["green"], events.partitions(3)[1], ["one"])
    client = open_client(connections["green"])
    try:
        await asyncio.to_thread(client.create_producer, str(audit))
        await admins["green"].create_subscription(read, "reads")
        await asyncio.to_thread(publish, connections["green"], read, ["gone"])
        assert await asyncio.to_thread(texts_of, connections["green"], read) == ["gone"]
        for _ in range(2):
            await admins["green"].put(f"/{read.path}/unload")
            await admins["green"].stats(read)
        request = request_of("blue", receive_only=["green"], namespaces=[str(namespace)], history=True)
        done = await plan(connections, request, "used")
    finally:
        await asyncio.to_thread(client.close)
    findings = done.planned.findings
    refused = {finding.resource for finding in findings if finding.id == "history-on-existing-topic"}
    assert refused == {str(events), str(audit), str(read)}, await admins["green"].internal_stats(read)


@pytest.mark.long
async def test_a_member_that_becomes_receive_only_sends_its_backlog_first(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    namespace = new_namespace()
    events, _ = await make_origin(admins["blue"], namespace)
    names = {"namespaces": [str(namespace)]}
    await replicate(connections, request_of("blue", "green", **names), "members")
    await asyncio.to_thread(publish, connections["green"], events, ["before"])
    done = await replicate(connections, request_of("blue", receive_only=["green"], **names), "one-way")
    assert done.plan.ends
    await asyncio.to_thread(publish, connections["green"], events, ["after"])
    await asyncio.to_thread(publish, connections["blue"], events, ["of-blue"])
    await wait_copied(admins["blue"], events.partitions(3), "green")
    assert await asyncio.to_thread(texts_of, connections["blue"], events) == ["before", "of-blue"]
    assert await asyncio.to_thread(texts_of, connections["green"], events) == ["after", "before", "of-blue"]


@pytest.mark.long
async def test_a_message_chooses_its_clusters_and_an_unknown_name_keeps_it_here(
    connections: Connections, admins: dict[str, AdminClient], new_namespace: Callable[[], NamespaceName]
) -> None:
    """The broker accepts unknown names without an error."""
    namespace = new_namespace()
    _, audit = await make_origin(admins["blue"], namespace)
    await replicate(connections, request_of("blue", "green", namespaces=[str(namespace)]), "selective")

    def send() -> None:
        client = open_client(connections["blue"])
        producer = client.create_producer(str(audit))
        producer.send(b"all")
        producer.send(b"off", disable_replication=True)
        producer.send(b"here", replication_clusters=["blue"])
        producer.send(b"there", replication_clusters=["green"])
        producer.send(b"unknown", replication_clusters=["nowhere"])
        client.close()

    await asyncio.to_thread(send)
    await wait_copied(admins["blue"], [audit], "green")
    assert await asyncio.to_thread(texts_of, connections["green"], audit) == ["all", "there"]
    assert len(await asyncio.to_thread(texts_of, connections["blue"], audit)) == 5
