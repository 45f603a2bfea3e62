"""Another cluster serves readers, by Airflow: a copy by replication in one direction, where nobody may produce."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.dag_runs import report, states
from tests.support.fleets import with_tokens
from tests.support.shadows import STORED, make_source

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.read_only, pytest.mark.long]

Play = Callable[..., Any]
GRANTS = {"producer": ["produce"], "nobody": ["consume", "produce"], "consumer": ["consume"]}
"""By roles for which the sandbox has tokens."""


def arrived(connection: ClusterConnection, topic: TopicName, count: int) -> int:
    """How many messages a consumer gets: `count`, or those that come within 20 s."""
    client, received = open_client(connection), 0
    try:
        consumer = client.subscribe(str(topic), f"reader-{count}", initial_position=pulsar.InitialPosition.Earliest)
        while received < count:
            consumer.receive(timeout_millis=20_000)
            received += 1
    except pulsar.Timeout:
        return received
    finally:
        client.close()
    return received


def write(connection: ClusterConnection, topic: TopicName, count: int) -> None:
    client = open_client(connection)
    producer = client.create_producer(str(topic))
    for number in range(count):
        producer.send(f"later {number}".encode())
    client.close()


async def grant(connection: ClusterConnection, namespace: NamespaceName) -> None:
    async with AdminClient(connection) as admin:
        for role, actions in GRANTS.items():
            await admin.post(f"/namespaces/{namespace.path}/permissions/{role}", actions)


async def grants(connection: ClusterConnection, namespace: NamespaceName) -> Any:
    async with AdminClient(connection) as admin:
        granted = (await admin.namespace(namespace) or {})["auth_policies"]["namespace_auth"]
        return {role: sorted(actions) for role, actions in granted.items()}


async def list_of(connection: ClusterConnection, topic: TopicName) -> Any:
    async with AdminClient(connection) as admin:
        return await admin.get(f"/{topic.path}/replication") or []


async def make(connection: ClusterConnection, sandbox: Sandbox, topic: TopicName) -> None:
    async with AdminClient(connection) as admin:
        await make_source(admin, sandbox["blue"], topic, 2)


def test_a_copy_serves_readers_and_nobody_may_produce_there(
    play: Play, blue: ClusterConnection, green: ClusterConnection, clusters: Sandbox, new_namespace: Callable[[], Any]
) -> None:
    topic = TopicName(new_namespace(), "events")
    asyncio.run(make(blue, clusters, topic))
    asyncio.run(grant(blue, topic.namespace))
    conf = {"cluster": "pulsar_blue", "topics": [str(topic)], "other_cluster": "pulsar_green"}
    dry = play("serve_read_only", **conf, dry_run=True)
    assert states(dry)["create_topics"] == "skipped"
    for words in (
        "The copy of 1 topic stores",
        f"In {topic.namespace} on green nobody, producer may not produce",
        f"blue: POST /admin/v2/{topic.path}/replication",
    ):
        assert words in report(dry)

    done = play("serve_read_only", **conf, auto_approve=True)
    assert set(states(done).values()) == {"success"}, report(done)
    assert "2 of 2 links are connected and send." in report(done)
    assert f"pulsar-fleet undo serve_read_only/{done.run_id}/permissions" in report(done)
    assert arrived(green, topic, STORED) == STORED
    write(blue, topic, 5)
    assert arrived(green, topic, STORED + 5) == STORED + 5
    assert asyncio.run(grants(green, topic.namespace)) == {"nobody": ["consume"], "consumer": ["consume"]}
    assert asyncio.run(grants(blue, topic.namespace)) == GRANTS

    client = open_client(green)
    producer = client.create_producer(str(topic), producer_name="app-7")
    refused = play("serve_read_only", **conf, auto_approve=True)
    producer.close()
    client.close()
    assert states(refused)["plan_changes"] == "failed"
    assert "publish to" in report(refused)
    assert "'app-7'" in report(refused)

    ending = {"clusters": ["pulsar_blue"], "leaving": ["pulsar_green"], "namespaces": [str(topic.namespace)]}
    ended = play("replicate_namespaces", **ending, auto_approve=True)
    assert set(states(ended).values()) == {"success"}, report(ended)
    write(blue, topic, 5)
    assert asyncio.run(list_of(blue, topic)) in ([], ["blue"])
    assert arrived(green, topic, STORED + 6) == STORED + 5


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"other_cluster": "pulsar_blue"}, "the cluster itself"),
        ({"namespace": "acme/readers"}, "readers find a copy under the names of its topics"),
        ({"brokers": ["127.0.0.3"]}, "'brokers' are of shadow topics"),
        ({"remove": True}, "'leaving'"),
        ({"topics": []}, "'topics' is empty"),
    ],
)
def test_what_a_copy_does_not_have_fails_the_first_task(play: Play, conf: dict[str, Any], words: str) -> None:
    base = {"cluster": "pulsar_blue", "topics": ["persistent://acme/a/b"], "other_cluster": "pulsar_green"}
    run = play("serve_read_only", **{**base, **conf})
    assert states(run)["read_request"] == "failed"
    assert words in report(run)


def test_with_tokens_and_tls_readers_get_everything_and_producers_nothing(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with with_tokens(tmp_path) as fleet:
        for name, value in fleet.variables().items():
            monkeypatch.setenv(name, value)
        topic = TopicName(NamespaceName("copied", "orders"), "events")
        asyncio.run(make_secured(fleet.blue, topic))
        conf = {"cluster": fleet.blue.name, "topics": [str(topic)], "other_cluster": fleet.green.name}
        done = play("serve_read_only", **conf, auto_approve=True)
        assert set(states(done).values()) == {"success"}, report(done)
        roles = {role: replace(fleet.green, token=fleet.sandbox["green"].token(role)) for role in GRANTS}
        assert arrived(roles["consumer"], topic, STORED) == STORED
        for role in GRANTS:
            client = open_client(roles[role])
            with pytest.raises(pulsar.AuthorizationError):
                client.create_producer(str(topic))
            client.close()
        write(replace(fleet.blue, token=fleet.sandbox["blue"].token("producer")), topic, 20)
        assert arrived(roles["nobody"], topic, STORED + 20) == STORED + 20
        proven = play(
            "verify_clusters",
            source=fleet.blue.name,
            target=fleet.green.name,
            namespaces=[str(topic.namespace)],
            subscriptions=False,
        )
        assert "Equal: 40 messages on blue and green" in report(proven)
        again = play("serve_read_only", **conf, auto_approve=True)
        assert set(states(again).values()) == {"success"}, report(again)
        for run in (done, again):
            assert not [secret for secret in fleet.secrets if secret in report(run)]


async def make_secured(connection: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(connection) as admin:
        own = await admin.cluster_name()
        await admin.put(f"/tenants/{topic.namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        await admin.put_namespace(topic.namespace, {"replication_clusters": [own]})
        await admin.create_partitioned_topic(topic, 2)
        await admin.create_subscription(topic, "owner")
    await grant(connection, topic.namespace)
    await asyncio.to_thread(write, connection, topic, STORED)
