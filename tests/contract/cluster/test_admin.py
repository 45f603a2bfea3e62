"""The admin client on real brokers: what was written is read back, and every failure says who must act."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import jwt
import pulsar
import pytest
from tests.support.balancer import Balancer
from tests.support.brokers import topic_of_broker
from tests.support.following_proxy import FollowingProxy
from tests.support.issuer import issuing
from tests.support.proxy import CUT, HANG, LOST_ANSWER, Proxy, answer, raw, redirect, slow

from pulsar_fleet.cluster.admin.call import PartitionMetadata, bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads, Problem
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import (
    Conflict,
    FleetError,
    InvalidRequest,
    NotAllowed,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unauthenticated,
    Unavailable,
)
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_fleet.messages.engines.engines import EntryEngine
from pulsar_fleet.messages.protocol import frames
from pulsar_fleet.messages.protocol.connection import BrokerAddress, WireConnection
from pulsar_fleet.messages.ranges import Range, TopicBounds, cut
from pulsar_sandbox import Cluster
from pulsar_sandbox.sandbox.ports import free_ports

pytestmark = pytest.mark.versions

MakeNamespace = Callable[[AdminClient, NamespaceName], Awaitable[None]]
DYNAMIC = "loadBalancerSheddingEnabled"
RETENTION = {"retentionTimeInMinutes": 600, "retentionSizeInMB": 1000}
PUBLISH = {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": 1000}
MESSAGES = 10
AWKWARD = "b c%2Fd+e?f&g=ü;h"
ONE_SENTENCE = re.compile(r"[^\n]+[^.\s]\.")


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 20) -> bool:
    """Ask again until it holds: brokers apply some changes after they have answered."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await holds():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def unknown(prefix: str) -> str:
    """A name that nobody has used."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def namespace(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName], make_namespace: MakeNamespace
) -> NamespaceName:
    """An empty namespace on blue."""
    name = new_namespace()
    await make_namespace(on_blue, name)
    return name


@pytest.fixture
async def topic(on_blue: AdminClient, namespace: NamespaceName) -> TopicName:
    """An empty plain topic on blue."""
    name = TopicName(namespace, "events")
    await on_blue.create_topic(name)
    return name


@pytest.fixture
def client(blue: ClusterConnection) -> Iterator[pulsar.Client]:
    """A client that writes to blue and reads from it."""
    connected = open_client(blue)
    yield connected
    connected.close()


@pytest.fixture
def written(client: pulsar.Client, topic: TopicName) -> list[Position]:
    """The positions of messages `0`, `1`, … with a property, one per entry."""
    producer = client.create_producer(str(topic), batching_enabled=False)
    sent = [producer.send(b"%d" % number, properties={"team": "billing"}) for number in range(MESSAGES)]
    producer.close()
    return [Position(message_id.ledger_id(), message_id.entry_id()) for message_id in sent]


# The cluster and its brokers.


async def test_a_cluster_says_its_own_name(on_blue: AdminClient, on_green: AdminClient) -> None:
    assert (await on_blue.cluster_name(), await on_green.cluster_name()) == ("blue", "green")


async def test_the_name_is_asked_for_once(on_blue: AdminClient) -> None:
    await on_blue.cluster_name()
    await on_blue.cluster_name()
    assert on_blue.calls == 1


async def test_brokers_are_listed_by_their_web_address(on_blue: AdminClient, blue: ClusterConnection) -> None:
    assert await on_blue.brokers() == (urlsplit(blue.admin_url).netloc,)


async def test_a_broker_is_asked_for_its_configuration_by_its_address(on_blue: AdminClient) -> None:
    (broker,) = await on_blue.brokers()
    assert (await on_blue.runtime_configuration(broker))["clusterName"] == "blue"


async def test_a_broker_says_its_version(on_blue: AdminClient) -> None:
    (broker,) = await on_blue.brokers()
    assert re.fullmatch(r"\d+\.\d+\.\d+(-.+)?", await on_blue.version(broker))


async def test_the_next_of_several_admin_urls_is_called_where_one_is_unreachable(blue: ClusterConnection) -> None:
    gone = next(free_ports())
    several = replace(blue, admin_url=f"http://localhost:{gone},{urlsplit(blue.admin_url).netloc}")
    async with AdminClient(several) as admin:
        assert await admin.cluster_name() == "blue"
        assert (admin.calls, admin.http.admin_url) == (2, blue.admin_url)
        await admin.tenants()
        assert admin.calls == 3


async def test_a_cluster_is_unavailable_where_none_of_its_admin_urls_answers(blue: ClusterConnection) -> None:
    hosts = ",".join(f"localhost:{port}" for port in islice(free_ports(), 2))
    async with AdminClient(replace(blue, admin_url=f"http://{hosts}"), retry_seconds=1.0) as admin:
        with pytest.raises(Unavailable, match="got no answer"):
            await admin.tenants()


async def test_a_broker_that_is_gone_is_named(on_blue: AdminClient) -> None:
    with pytest.raises(Unavailable, match="blue: GET /admin/v2/brokers/version at http://localhost:1 "):
        async with AdminClient(on_blue.connection, retry_seconds=0) as impatient:
            await impatient.version("localhost:1")


async def test_a_cluster_knows_itself(on_blue: AdminClient) -> None:
    assert "blue" in await on_blue.clusters()


async def test_an_unknown_cluster_is_none(on_blue: AdminClient) -> None:
    assert await on_blue.cluster_data(unknown("peer")) is None


@pytest.fixture
async def peer(on_blue: AdminClient) -> AsyncIterator[str]:
    """A cluster that exists in blue's metadata only."""
    name = unknown("peer")
    await on_blue.put_cluster(name, {"serviceUrl": "http://peer:8080", "brokerServiceUrl": "pulsar://peer:6650"})
    yield name
    await on_blue.delete(f"/clusters/{name}")


@pytest.mark.cluster
async def test_a_peer_that_was_made_known_is_read_back(on_blue: AdminClient, peer: str) -> None:
    assert (await on_blue.cluster_data(peer) or {})["brokerServiceUrl"] == "pulsar://peer:6650"


@pytest.mark.cluster
async def test_a_peer_that_was_made_known_is_listed(on_blue: AdminClient, peer: str) -> None:
    assert peer in await on_blue.clusters()


@pytest.mark.cluster
async def test_a_peer_that_is_known_already_is_a_conflict(on_blue: AdminClient, peer: str) -> None:
    with pytest.raises(Conflict, match="blue answered 409 to PUT /admin/v2/clusters/peer-"):
        await on_blue.put_cluster(peer, {"serviceUrl": "http://peer:8080"})


# Dynamic settings.


@pytest.fixture
async def static_value(on_blue: AdminClient) -> AsyncIterator[str]:
    """What the setting is without an override; afterwards it has none."""
    yield (await on_blue.runtime_configuration())[DYNAMIC]
    await on_blue.unset_dynamic(DYNAMIC)


def other(value: str) -> str:
    return {"true": "false", "false": "true"}[value]


@pytest.mark.cluster
async def test_an_override_is_listed(on_blue: AdminClient, static_value: str) -> None:
    await on_blue.set_dynamic(DYNAMIC, other(static_value))
    assert (await on_blue.dynamic_overrides())[DYNAMIC] == other(static_value)


@pytest.mark.cluster
async def test_an_override_reaches_the_broker(on_blue: AdminClient, static_value: str) -> None:
    await on_blue.set_dynamic(DYNAMIC, other(static_value))

    async def reached() -> bool:
        return (await on_blue.runtime_configuration())[DYNAMIC] == other(static_value)

    assert await eventually(reached)


@pytest.mark.cluster
async def test_an_override_that_is_removed_is_no_longer_listed(on_blue: AdminClient, static_value: str) -> None:
    await on_blue.set_dynamic(DYNAMIC, other(static_value))
    await on_blue.unset_dynamic(DYNAMIC)
    assert DYNAMIC not in await on_blue.dynamic_overrides()


@pytest.mark.cluster
async def test_without_its_override_a_setting_is_what_it_was(on_blue: AdminClient, static_value: str) -> None:
    await on_blue.set_dynamic(DYNAMIC, other(static_value))
    await on_blue.unset_dynamic(DYNAMIC)

    async def restored() -> bool:
        return (await on_blue.runtime_configuration())[DYNAMIC] == static_value

    assert await eventually(restored)


@pytest.mark.cluster
async def test_an_override_that_was_never_set_can_be_removed(on_blue: AdminClient, static_value: str) -> None:
    await on_blue.unset_dynamic(DYNAMIC)
    assert DYNAMIC not in await on_blue.dynamic_overrides()


@pytest.mark.cluster
async def test_a_setting_that_is_not_dynamic_is_rejected(on_blue: AdminClient) -> None:
    with pytest.raises(InvalidRequest, match="blue answered 412 to POST"):
        await on_blue.set_dynamic("clusterName", "violet")


# Tenants and namespaces.


async def test_a_tenant_is_read_back(on_blue: AdminClient, namespace: NamespaceName) -> None:
    assert await on_blue.tenant(namespace.tenant) == {"adminRoles": ["owner"], "allowedClusters": ["blue"]}


async def test_a_tenant_is_listed(on_blue: AdminClient, namespace: NamespaceName) -> None:
    assert namespace.tenant in await on_blue.tenants()


async def test_an_absent_tenant_is_none(on_blue: AdminClient) -> None:
    assert await on_blue.tenant(unknown("tenant")) is None


async def test_a_tenant_for_an_unknown_cluster_is_rejected(on_blue: AdminClient) -> None:
    with pytest.raises(InvalidRequest, match=r"blue answered 412 .*: Clusters do not exist"):
        await on_blue.put(f"/tenants/{unknown('tenant')}", {"allowedClusters": [unknown("peer")]})


async def test_namespaces_are_listed(on_blue: AdminClient, namespace: NamespaceName) -> None:
    assert await on_blue.namespaces(namespace.tenant) == (namespace,)


async def test_namespaces_of_an_absent_tenant_are_missing(on_blue: AdminClient) -> None:
    with pytest.raises(NotFound, match="blue answered 404 to GET /admin/v2/namespaces/tenant-"):
        await on_blue.namespaces(unknown("tenant"))


async def test_an_absent_namespace_is_none(on_blue: AdminClient, namespace: NamespaceName) -> None:
    assert await on_blue.namespace(replace(namespace, name="absent")) is None


async def test_a_namespace_is_created_with_its_policies(on_blue: AdminClient, namespace: NamespaceName) -> None:
    name = replace(namespace, name="kept")
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"], "retention_policies": RETENTION})
    assert (await on_blue.namespace(name) or {})["retention_policies"] == RETENTION


async def test_a_namespace_that_exists_is_a_conflict(on_blue: AdminClient, namespace: NamespaceName) -> None:
    with pytest.raises(Conflict, match="blue answered 409"):
        await on_blue.put_namespace(namespace, {"replication_clusters": ["blue"]})


async def test_a_policy_that_is_not_set_is_none(on_blue: AdminClient, namespace: NamespaceName) -> None:
    assert await on_blue.get(f"/namespaces/{namespace.path}/publishRate") is None


async def test_a_policy_is_read_back(on_blue: AdminClient, namespace: NamespaceName) -> None:
    await on_blue.post(f"/namespaces/{namespace.path}/publishRate", PUBLISH)
    assert await on_blue.get(f"/namespaces/{namespace.path}/publishRate") == PUBLISH


async def test_a_policy_that_is_removed_is_none(on_blue: AdminClient, namespace: NamespaceName) -> None:
    await on_blue.post(f"/namespaces/{namespace.path}/publishRate", PUBLISH)
    await on_blue.delete(f"/namespaces/{namespace.path}/publishRate")
    assert await on_blue.get(f"/namespaces/{namespace.path}/publishRate") is None


async def test_a_planned_call_is_sent_with_its_body(on_blue: AdminClient, namespace: NamespaceName) -> None:
    path = f"/namespaces/{namespace.path}/retention"
    await on_blue.send(with_body("POST", path, RETENTION))
    assert await on_blue.get(path) == RETENTION


async def test_a_planned_call_is_sent_with_its_query(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.send(bare("POST", f"/{topic.path}/messageTTL", messageTTL="77"))

    async def reached() -> bool:
        return bool(await on_blue.get(f"/{topic.path}/messageTTL") == 77)

    assert await eventually(reached)


# Topics.


async def test_partitions_are_listed_one_by_one(on_blue: AdminClient, topic: TopicName) -> None:
    orders = TopicName(topic.namespace, "orders")
    await on_blue.create_partitioned_topic(orders, 2)
    assert await on_blue.topics(topic.namespace) == (topic, orders.partition(0), orders.partition(1))


async def test_a_partitioned_topic_is_listed_by_its_own_name(on_blue: AdminClient, topic: TopicName) -> None:
    orders = TopicName(topic.namespace, "orders")
    await on_blue.create_partitioned_topic(orders, 2)
    assert await on_blue.partitioned_topics(topic.namespace) == (orders,)


async def test_topics_of_an_absent_namespace_are_missing(on_blue: AdminClient, namespace: NamespaceName) -> None:
    with pytest.raises(NotFound, match="blue answered 404"):
        await on_blue.topics(replace(namespace, name="absent"))


async def has_system_topic(admin: AdminClient, namespace: NamespaceName, *, system: bool) -> bool:
    return any(name.is_system for name in await admin.topics(namespace, system=system))


async def test_system_topics_are_listed_only_on_request(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.post(f"/{topic.path}/messageTTL", messageTTL=77)
    assert await eventually(lambda: has_system_topic(on_blue, topic.namespace, system=True))
    assert not await has_system_topic(on_blue, topic.namespace, system=False)


async def test_a_topic_with_an_awkward_name_is_read_back(on_blue: AdminClient, namespace: NamespaceName) -> None:
    awkward = TopicName(namespace, AWKWARD)
    await on_blue.create_topic(awkward)
    assert await on_blue.topics(namespace) == (awkward,)


async def test_a_partitioned_topic_keeps_its_properties(on_blue: AdminClient, namespace: NamespaceName) -> None:
    orders = TopicName(namespace, "orders")
    await on_blue.create_partitioned_topic(orders, 3, {"team": "billing"})
    assert await on_blue.partition_metadata(orders) == PartitionMetadata(3, {"team": "billing"})


async def test_a_plain_topic_keeps_its_properties(on_blue: AdminClient, namespace: NamespaceName) -> None:
    plain = TopicName(namespace, "plain")
    await on_blue.create_topic(plain, {"team": "billing"})
    assert (await on_blue.internal_info(plain))["properties"]["team"] == "billing"


async def test_a_plain_topic_has_0_partitions(on_blue: AdminClient, topic: TopicName) -> None:
    assert await on_blue.partition_metadata(topic) == PartitionMetadata(0, {})


async def test_asking_for_the_partitions_of_an_absent_topic_creates_none(
    on_blue: AdminClient, namespace: NamespaceName
) -> None:
    with pytest.raises(NotFound):
        await on_blue.partition_metadata(TopicName(namespace, "absent"))
    assert await on_blue.topics(namespace) == ()


async def test_a_plain_topic_that_exists_is_a_conflict(on_blue: AdminClient, topic: TopicName) -> None:
    with pytest.raises(Conflict, match=r"blue answered 409 .*already exist"):
        await on_blue.create_topic(topic)


async def test_a_partitioned_topic_that_exists_is_left_as_it_is(on_blue: AdminClient, namespace: NamespaceName) -> None:
    orders = TopicName(namespace, "orders")
    await on_blue.create_partitioned_topic(orders, 1)
    await on_blue.create_partitioned_topic(orders, 3)
    assert (await on_blue.partition_metadata(orders)).partitions == 1


@pytest.fixture
async def replicated(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> AsyncIterator[NamespaceName]:
    """A namespace on both clusters that blue replicates to green."""
    name = new_namespace()
    introduced = await on_blue.cluster_data("green") is None
    if introduced:
        urls = {"serviceUrl": on_green.connection.admin_url, "brokerServiceUrl": on_green.connection.service_url}
        await on_blue.put_cluster("green", urls)
    await on_blue.put(f"/tenants/{name.tenant}", {"allowedClusters": ["blue", "green"]})
    await on_green.put(f"/tenants/{name.tenant}", {"allowedClusters": ["green"]})
    await on_green.put_namespace(name, {"replication_clusters": ["green"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue", "green"]})
    yield name
    await on_blue.post(f"/namespaces/{name.path}/replication", ["blue"])
    await on_blue.delete(f"/namespaces/{name.path}", force=True)
    await on_blue.delete(f"/tenants/{name.tenant}")
    if introduced:
        await on_blue.delete("/clusters/green")


async def test_a_partitioned_topic_of_a_replicated_namespace_stays_local(
    on_blue: AdminClient, on_green: AdminClient, replicated: NamespaceName
) -> None:
    local, everywhere = TopicName(replicated, "local"), TopicName(replicated, "everywhere")
    await on_blue.create_partitioned_topic(local, 1)
    await on_blue.put(f"/{everywhere.path}/partitions", 1)

    async def arrived() -> bool:
        return everywhere in await on_green.partitioned_topics(replicated)

    assert await eventually(arrived)
    assert local not in await on_green.partitioned_topics(replicated)


async def test_an_unloaded_topic_shows_its_cursors(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.create_subscription(topic, "billing")
    await on_blue.put(f"/{topic.path}/unload")
    assert list((await on_blue.internal_info(topic))["cursors"]) == ["billing"]


@pytest.mark.parametrize("read", ["partition_metadata", "stats", "internal_stats"])
async def test_an_absent_topic_is_missing(on_blue: AdminClient, namespace: NamespaceName, read: str) -> None:
    with pytest.raises(NotFound, match=r"blue answered 404 to GET .*/absent/"):
        await getattr(on_blue, read)(TopicName(namespace, "absent"))


async def test_an_absent_topic_looks_like_a_broker_in_trouble_in_internal_info(
    impatient: AdminClient, namespace: NamespaceName
) -> None:
    with pytest.raises(Unavailable, match=r"blue answered 500 .*: Request failed"):
        await impatient.internal_info(TopicName(namespace, "absent"))


async def test_statistics_count_what_was_written(
    on_blue: AdminClient, topic: TopicName, written: list[Position]
) -> None:
    assert (await on_blue.stats(topic))["msgInCounter"] == MESSAGES


async def test_statistics_count_the_backlog_to_the_entry_or_quickly(
    on_blue: AdminClient, topic: TopicName, written: list[Position]
) -> None:
    await on_blue.create_subscription(topic, "billing")
    statistics = [await on_blue.stats(topic, precise=precise) for precise in (True, False)]
    assert [stats["subscriptions"]["billing"]["msgBacklog"] for stats in statistics] == [MESSAGES, MESSAGES]


async def test_internal_statistics_name_the_last_entry(
    on_blue: AdminClient, topic: TopicName, written: list[Position]
) -> None:
    assert Position.parse((await on_blue.internal_stats(topic))["lastConfirmedEntry"]) == written[-1]


@pytest.mark.needs_pulsar("4.0", "an older broker answers a header for each property")
async def test_an_entry_tells_its_properties_without_a_subscription(
    on_blue: AdminClient, topic: TopicName, written: list[Position]
) -> None:
    headers = await on_blue.entry_properties(topic, written[3])
    assert json.loads(headers["x-pulsar-property"]) == {"team": "billing"}


async def test_an_entry_of_a_ledger_that_is_gone_is_missing(
    on_blue: AdminClient, topic: TopicName, written: list[Position]
) -> None:
    with pytest.raises(NotFound, match="Message id not found"):
        await on_blue.entry_properties(topic, Position(10**9, 0))


# Subscriptions.


def first_message(client: pulsar.Client, topic: TopicName, subscription: str) -> bytes:
    consumer = client.subscribe(str(topic), subscription)
    data: bytes = consumer.receive(10_000).data()
    consumer.close()
    return data


async def test_a_subscription_begins_with_the_entry_at_its_position(
    on_blue: AdminClient, topic: TopicName, written: list[Position], client: pulsar.Client
) -> None:
    await on_blue.create_subscription(topic, "billing", written[3])
    assert first_message(client, topic, "billing") == b"3"


@pytest.mark.parametrize(("position", "backlog"), [("earliest", MESSAGES), ("latest", 0)])
async def test_a_subscription_begins_at_an_end(
    on_blue: AdminClient, topic: TopicName, written: list[Position], position: str, backlog: int
) -> None:
    await on_blue.create_subscription(topic, "billing", position)
    assert (await on_blue.stats(topic))["subscriptions"]["billing"]["msgBacklog"] == backlog


async def test_a_subscription_with_an_awkward_name_is_read_back(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.create_subscription(topic, f"a/{AWKWARD}")
    assert list((await on_blue.stats(topic))["subscriptions"]) == [f"a/{AWKWARD}"]


async def test_a_subscription_that_exists_is_a_conflict(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.create_subscription(topic, "billing")
    with pytest.raises(Conflict, match="blue answered 409"):
        await on_blue.create_subscription(topic, "billing")


async def test_a_subscription_with_an_awkward_name_can_be_deleted(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.create_subscription(topic, f"a/{AWKWARD}")
    await on_blue.delete_subscription(topic, f"a/{AWKWARD}")
    assert (await on_blue.stats(topic))["subscriptions"] == {}


async def test_an_absent_subscription_is_missing(on_blue: AdminClient, topic: TopicName) -> None:
    with pytest.raises(NotFound, match="blue answered 404"):
        await on_blue.delete_subscription(topic, "absent")


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_call_about_a_subscription_named_like_a_path_changes_nothing(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName], make_namespace: MakeNamespace, name: str
) -> None:
    """The deletion of subscription `..` of a partitioned topic deleted the topic, however the name was encoded."""
    namespace = new_namespace()
    await make_namespace(on_blue, namespace)
    topic = TopicName(namespace, "events")
    await on_blue.create_partitioned_topic(topic, 2, {"team": "billing"})
    await on_blue.create_subscription(topic, "kept")
    for call in (on_blue.delete_subscription(topic, name, force=True), on_blue.create_subscription(topic, name)):
        with pytest.raises(InvalidRequest, match="Nothing was sent"):
            await call
    assert await on_blue.get(f"/{topic.path}/subscriptions") == ["kept"]


async def test_a_subscription_in_use_is_not_deleted(
    on_blue: AdminClient, topic: TopicName, client: pulsar.Client
) -> None:
    client.subscribe(str(topic), "billing")
    with pytest.raises(InvalidRequest, match="blue answered 412"):
        await on_blue.delete_subscription(topic, "billing")


# Schemas.


def avro(fields: int) -> JsonObject:
    """A schema of so many optional fields."""
    listed = [{"name": f"f{number}", "type": ["null", "int"], "default": None} for number in range(fields)]
    schema = json.dumps({"type": "record", "name": "Order", "fields": listed})
    return {"type": "AVRO", "schema": schema, "properties": {"fields": str(fields)}}


async def test_schemas_are_read_in_the_order_of_their_versions(on_blue: AdminClient, topic: TopicName) -> None:
    for fields in range(1, 12):
        await on_blue.post_schema(topic, avro(fields))
    schemas = await on_blue.schemas(topic)
    assert [schema["properties"]["fields"] for schema in schemas] == [str(fields) for fields in range(1, 12)]


async def test_a_topic_without_schema_has_none(on_blue: AdminClient, topic: TopicName) -> None:
    assert await on_blue.schemas(topic) == []


async def test_the_same_schema_again_adds_no_version(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.post_schema(topic, avro(1))
    await on_blue.post_schema(topic, avro(1))
    assert [schema["version"] for schema in await on_blue.schemas(topic)] == [0]


async def test_an_incompatible_schema_is_a_conflict(on_blue: AdminClient, topic: TopicName) -> None:
    await on_blue.post_schema(topic, avro(1))
    with pytest.raises(Conflict, match=r"blue answered 409 .*[Ii]ncompatible"):
        await on_blue.post_schema(topic, {"type": "STRING", "schema": "", "properties": {}})


async def test_a_schema_that_cannot_be_parsed_is_rejected(on_blue: AdminClient, topic: TopicName) -> None:
    with pytest.raises(InvalidRequest, match="blue answered 422"):
        await on_blue.post_schema(topic, {"type": "AVRO", "schema": "{", "properties": {}})


# Faults on the way.


@pytest.fixture
async def behind(blue: ClusterConnection, proxy: Proxy) -> AsyncIterator[AdminClient]:
    """A client that reaches blue through the proxy."""
    async with AdminClient(replace(blue, admin_url=proxy.url)) as admin:
        yield admin


@pytest.fixture
async def impatient(blue: ClusterConnection, proxy: Proxy) -> AsyncIterator[AdminClient]:
    """A client behind the proxy that never tries again and waits half a second for an answer."""
    connection = replace(blue, admin_url=proxy.url, timeout_seconds=0.5, max_connections=1)
    async with AdminClient(connection, retry_seconds=0) as admin:
        yield admin


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_an_answer_that_passes_is_tried_again(proxy: Proxy, behind: AdminClient, status: int) -> None:
    proxy.faults.append(answer(status))
    assert "blue" in await behind.clusters()


async def test_a_topic_whose_broker_left_is_asked_for_again(proxy: Proxy, behind: AdminClient) -> None:
    proxy.faults.append(answer(412, '{"reason": "Can\'t find owner for topic persistent://a/b/c"}'))
    assert "blue" in await behind.clusters()


@pytest.mark.long
async def test_a_cut_connection_is_tried_again(proxy: Proxy, behind: AdminClient) -> None:
    proxy.faults.extend([CUT, CUT, CUT])
    assert "blue" in await behind.clusters()


async def test_a_call_with_a_body_is_tried_again_with_its_body(
    proxy: Proxy, behind: AdminClient, namespace: NamespaceName
) -> None:
    proxy.faults.append(answer(503))
    await behind.post(f"/namespaces/{namespace.path}/retention", RETENTION)
    assert await behind.get(f"/namespaces/{namespace.path}/retention") == RETENTION


async def test_a_broker_that_never_recovers_is_transient(blue: ClusterConnection, proxy: Proxy) -> None:
    proxy.otherwise = answer(503, '{"reason": "still loading"}')
    async with AdminClient(replace(blue, admin_url=proxy.url), retry_seconds=0.5) as admin:
        with pytest.raises(Unavailable, match=r"^blue answered 503 to GET /admin/v2/clusters: still loading$"):
            await admin.clusters()
    assert len(proxy.seen) > 1


async def test_an_unanswered_call_is_repeated_although_its_time_is_used_up(
    blue: ClusterConnection, proxy: Proxy
) -> None:
    proxy.faults.append(HANG)
    silent = replace(blue, admin_url=proxy.url, timeout_seconds=1)
    async with AdminClient(silent, retry_seconds=1) as admin:
        assert "blue" in await admin.clusters()


@pytest.mark.cluster
async def test_a_request_that_is_wrong_is_sent_once(proxy: Proxy, behind: AdminClient) -> None:
    with pytest.raises(InvalidRequest):
        await behind.set_dynamic("clusterName", "violet")
    assert len(proxy.seen) == 1


async def test_a_topic_that_has_moved_to_another_cluster_is_a_conflict_at_once(
    proxy: Proxy, behind: AdminClient
) -> None:
    proxy.otherwise = answer(500, '{"reason": "Topic is already migrated"}')
    with pytest.raises(Conflict, match="already migrated"):
        await behind.clusters()
    assert len(proxy.seen) == 1


async def test_a_broker_that_hangs_is_named_with_the_call(proxy: Proxy, impatient: AdminClient) -> None:
    proxy.otherwise = HANG
    with pytest.raises(Unavailable) as caught:
        await impatient.clusters()
    assert str(caught.value).startswith(f"blue: GET /admin/v2/clusters at {proxy.url} got no answer: Timeout")


async def test_a_broker_that_hung_once_is_asked_again(blue: ClusterConnection, proxy: Proxy) -> None:
    proxy.faults.append(HANG)
    async with AdminClient(replace(blue, admin_url=proxy.url, timeout_seconds=0.5)) as admin:
        assert "blue" in await admin.clusters()


async def test_calls_that_wait_for_a_connection_do_not_time_out(proxy: Proxy, impatient: AdminClient) -> None:
    proxy.otherwise = slow(0.2)
    assert await asyncio.gather(*(impatient.clusters() for _ in range(6)))


async def test_every_request_is_counted(proxy: Proxy, behind: AdminClient) -> None:
    proxy.faults.extend([answer(503), answer(429)])
    await behind.clusters()
    await behind.tenants()
    assert behind.calls == len(proxy.seen)


async def test_an_unreachable_cluster_is_one_sentence(blue: ClusterConnection) -> None:
    nobody = f"http://127.0.0.1:{next(free_ports())}"
    async with AdminClient(replace(blue, admin_url=nobody), retry_seconds=0) as admin:
        with pytest.raises(Unavailable, match=f"^blue: GET /admin/v2/clusters at {nobody} got no answer: ") as caught:
            await admin.clusters()
    assert ONE_SENTENCE.fullmatch(str(caught.value))


@pytest.mark.long
async def test_a_port_that_does_not_speak_http_is_told(proxy: Proxy, impatient: AdminClient) -> None:
    proxy.otherwise = raw(b"\x15\x03\x03\x00\x02\x02\x50")
    with pytest.raises(InvalidRequest, match=r"^blue: .* is not an admin API"):
        await impatient.clusters()


async def test_a_page_that_is_not_of_a_broker_is_told(proxy: Proxy, impatient: AdminClient) -> None:
    proxy.otherwise = answer(200, "<html>Sign in</html>")
    with pytest.raises(InvalidRequest, match=r"^blue: .* is not an admin API"):
        await impatient.clusters()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_message_port_instead_of_the_admin_port_is_named_at_once(
    blue: ClusterConnection, scheme: str
) -> None:
    wrong = replace(blue, admin_url=blue.require_service_url().replace("pulsar:", f"{scheme}:"))
    async with AdminClient(wrong) as admin:
        with pytest.raises(InvalidRequest, match=r"^blue: .* speaks Pulsar's binary protocol, which is for messages"):
            await admin.clusters()
        assert admin.calls == 1


async def test_a_path_that_the_brokers_do_not_serve_is_named(blue: ClusterConnection) -> None:
    async with AdminClient(replace(blue, admin_url=f"{blue.admin_url}/pulsar")) as admin:
        with pytest.raises(InvalidRequest, match="remove the path /pulsar from the admin URL of this connection"):
            await admin.cluster_name()


async def test_redirects_in_a_circle_are_transient(proxy: Proxy, impatient: AdminClient) -> None:
    proxy.otherwise = redirect(f"{proxy.url}/admin/v2/clusters")
    with pytest.raises(Unavailable, match="redirected 5 times"):
        await impatient.clusters()


@pytest.mark.long
async def test_a_setter_whose_answer_was_lost_is_sent_again(
    proxy: Proxy, behind: AdminClient, namespace: NamespaceName
) -> None:
    proxy.faults.append(LOST_ANSWER)
    await behind.post(f"/namespaces/{namespace.path}/messageTTL", 60)
    assert [request.method for request in proxy.seen] == ["POST", "POST"]


# Redirects and credentials.


@pytest.fixture(params=["http", "https"])
def as_admin(secured: Cluster, request: pytest.FixtureRequest) -> ClusterConnection:
    """How a superuser reaches broker 0 of the secure cluster."""
    return reach(secured, secured.admin_url if request.param == "http" else secured.admin_url_tls)


def reach(secured: Cluster, admin_url: str, token: str | None = None) -> ClusterConnection:
    return ClusterConnection(
        name="wide", admin_url=admin_url, token=token or secured.token("admin"), tls_trust_file=secured.trust_file
    )


async def test_a_call_to_another_brokers_topic_keeps_method_body_and_token(
    as_admin: ClusterConnection,
) -> None:
    async with AdminClient(as_admin) as admin:
        topic = await topic_of_broker(admin, 1)
        before = admin.calls
        await admin.create_subscription(topic, "billing", Position(0, 0))
        # Each attempt is two requests; a busy broker may need a second one.
        assert (admin.calls - before) % 2 == 0
        assert "billing" in (await admin.stats(topic))["subscriptions"]


async def test_a_host_in_a_redirect_is_learnt_from_the_list_of_brokers(as_admin: ClusterConnection) -> None:
    async with AdminClient(as_admin) as admin:
        topic = await topic_of_broker(admin, 1)
    async with AdminClient(as_admin) as fresh:
        assert (await fresh.stats(topic))["subscriptions"] == {}


async def test_every_broker_is_asked_at_its_own_address(as_admin: ClusterConnection) -> None:
    async with AdminClient(as_admin, retry_seconds=0) as admin:
        configurations = [await admin.runtime_configuration(broker) for broker in await admin.brokers()]
    assert [configuration["advertisedAddress"] for configuration in configurations] == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.long
async def test_behind_a_load_balancer_every_broker_is_asked_for_itself(secured: Cluster) -> None:
    async with Balancer(secured.admin_urls_tls) as balancer:
        for _ in range(20):
            async with AdminClient(reach(secured, balancer.url), retry_seconds=0) as admin:
                # At once, so that the calls are on several connections.
                brokers = await admin.brokers() * 3
                configurations = await asyncio.gather(*(admin.runtime_configuration(broker) for broker in brokers))
            assert [configuration["advertisedAddress"] for configuration in configurations] == [
                "127.0.0.1",
                "127.0.0.2",
            ] * 3


async def test_the_address_of_a_broker_is_asked_behind_a_balancer_of_another_one(secured: Cluster) -> None:
    async with (
        Balancer(secured.admin_urls_tls[1:]) as balancer,
        AdminClient(reach(secured, balancer.url), retry_seconds=0) as admin,
    ):
        configurations = [await admin.runtime_configuration(broker) for broker in await admin.brokers()]
    assert [configuration["advertisedAddress"] for configuration in configurations] == ["127.0.0.1", "127.0.0.2"]


async def test_a_broker_is_unknown_behind_a_proxy_that_follows_redirects(
    secured: Cluster,
) -> None:
    security = Path(secured.trust_file).parent
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(security / "broker.cert.pem", security / "broker.key.pem")
    async with (
        FollowingProxy(secured.admin_urls, context) as proxy,
        AdminClient(reach(secured, proxy.url), retry_seconds=0) as admin,
    ):
        brokers, reads = await admin.brokers(), PartialReads()
        for broker in brokers:
            assert await reads.read(f"broker {broker}", admin.runtime_configuration(broker)) is None
        notes = reads.take_notes()
    assert [note.problem for note in notes] == [Problem.UNREADABLE] * 2
    assert all("answered at https://localhost" in note.detail and '"broker_urls"' in note.detail for note in notes)


async def test_brokers_and_redirects_are_reached_at_the_urls_of_the_connection(secured: Cluster) -> None:
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(url)) for url in secured.admin_urls]
        brokers = [urlsplit(url).netloc for url in secured.admin_urls]
        urls = tuple(zip(brokers, (proxy.url for proxy in proxies), strict=True))
        behind = replace(reach(secured, proxies[0].url), broker_urls=urls)
        async with AdminClient(behind) as admin:
            configurations = [await admin.runtime_configuration(broker) for broker in brokers]
            topic = await topic_of_broker(admin, 1)
            before = len(proxies[1].seen)
            await admin.stats(topic)
        assert [configuration["advertisedAddress"] for configuration in configurations] == ["127.0.0.1", "127.0.0.2"]
        assert len(proxies[1].seen) > before


async def test_a_foreign_host_is_refused(secured: Cluster) -> None:
    async with (
        Proxy(secured.admin_url) as proxy,
        Proxy(secured.admin_url, host="127.0.0.9") as foreign,
        AdminClient(reach(secured, proxy.url)) as admin,
    ):
        proxy.faults.append(redirect(f"{foreign.url}/admin/v2/clusters"))
        with pytest.raises(
            PreconditionFailed, match=f"^wide redirected a call to {foreign.url}, which is not one of its brokers"
        ):
            await admin.clusters()
        assert foreign.seen == []


async def test_a_redirect_from_https_to_http_is_refused(secured: Cluster) -> None:
    security = Path(secured.trust_file).parent
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(security / "broker.cert.pem", security / "broker.key.pem")
    async with (
        Proxy(secured.admin_url, tls=context) as proxy,
        Proxy(secured.admin_url) as unencrypted,
        AdminClient(reach(secured, proxy.url)) as admin,
    ):
        proxy.faults.append(redirect(f"{unencrypted.url}/admin/v2/clusters"))
        with pytest.raises(PreconditionFailed, match="not encrypted; the credentials were not sent there"):
            await admin.clusters()
        assert unencrypted.seen == []


@pytest.mark.parametrize("token", ["not-a-jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmVk"])
async def test_a_bad_token_is_told_as_credentials_that_are_not_accepted(secured: Cluster, token: str) -> None:
    async with AdminClient(reach(secured, secured.admin_url_tls, token)) as admin:
        with pytest.raises(PermissionDenied, match=r"^wide does not accept our credentials"):
            await admin.clusters()


async def test_no_token_is_told_as_credentials_that_are_not_accepted(secured: Cluster) -> None:
    async with AdminClient(replace(reach(secured, secured.admin_url_tls), token=None)) as admin:
        with pytest.raises(PermissionDenied, match=r"^wide does not accept our credentials"):
            await admin.clusters()


async def test_a_token_that_is_no_longer_accepted_is_renewed_once(secured: Cluster, tmp_path: Path) -> None:
    tokens = iter(["revoked", secured.token("admin"), "never asked for"])
    with issuing(lambda: next(tokens)) as issuer:
        oauth2 = OAuth2(key_file=issuer.key_file(tmp_path))
        async with AdminClient(replace(reach(secured, secured.admin_url_tls), token=None, oauth2=oauth2)) as admin:
            assert "wide" in await admin.clusters()
            with pytest.raises(NotFound):
                await admin.get("/namespaces/nobody/nothing")
        assert len(issuer.asked) == 2


async def test_a_role_without_rights_is_told_with_the_brokers_reason(secured: Cluster) -> None:
    async with AdminClient(reach(secured, secured.admin_url_tls, secured.token("nobody"))) as admin:
        with pytest.raises(PermissionDenied, match=r"^wide answered 401 to GET /admin/v2/tenants: .*nobody"):
            await admin.tenants()


async def test_a_role_without_rights_to_a_namespace_is_denied(secured: Cluster) -> None:
    async with AdminClient(reach(secured, secured.admin_url_tls, secured.token("nobody"))) as admin:
        with pytest.raises(PermissionDenied, match=r"^wide answered 403 to GET /admin/v2/namespaces/.*: Unauthorized"):
            await admin.namespace(NamespaceName("public", "default"))


async def test_a_certificate_of_an_unknown_authority_says_what_to_add(secured: Cluster) -> None:
    async with AdminClient(replace(reach(secured, secured.admin_url_tls), tls_trust_file=None)) as admin:
        with pytest.raises(PermissionDenied, match=r"is not trusted: .*Name its authority in .*tls_trust_file"):
            await admin.clusters()


@pytest.mark.parametrize(
    ("right", "wrong", "cause"),
    [
        ("admin_url", "https", "speaks HTTP without TLS: write http://"),
        ("admin_url_tls", "http", "speaks TLS: write https://"),
        ("service_url_tls", "http", "speaks Pulsar's binary protocol with TLS, which is for messages"),
        ("service_url_tls", "https", "speaks Pulsar's binary protocol with TLS, which is for messages"),
    ],
)
async def test_the_wrong_protocol_for_a_port_is_named_at_once(
    secured: Cluster, right: str, wrong: str, cause: str
) -> None:
    address = getattr(secured, right).partition("://")[2].partition(",")[0]
    async with AdminClient(reach(secured, f"{wrong}://{address}")) as admin:
        with pytest.raises(
            InvalidRequest, match=f"^wide: {wrong}://{address} is not an admin API: .*{cause}"
        ) as caught:
            await admin.clusters()
        assert admin.calls == 1
    assert ONE_SENTENCE.fullmatch(str(caught.value))


class Collector(logging.Handler):
    """Keeps the text of every record of every logger, with its exception."""

    def __init__(self) -> None:
        super().__init__(level=0)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{self.format(record)} {record.__dict__}")


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Everything that is logged, at any level."""
    root, collector = logging.getLogger(), Collector()
    level = root.level
    root.addHandler(collector)
    root.setLevel(1)
    yield collector.texts
    root.setLevel(level)
    root.removeHandler(collector)


async def fail_in_every_way(connection: ClusterConnection, proxy: Proxy) -> list[FleetError]:
    """One failure of each kind, with a token that must not be shown."""
    faults = [
        answer(503),
        CUT,
        HANG,
        answer(401),
        answer(409),
        redirect("http://127.0.0.9:1/"),
        raw(b"no HTTP\r\n\r\n"),
    ]
    failures: list[FleetError] = []
    for fault in faults:
        proxy.otherwise = fault
        async with AdminClient(replace(connection, timeout_seconds=0.3), retry_seconds=0.1) as admin:
            with pytest.raises(FleetError) as caught:
                await admin.tenants()
        failures.append(caught.value)
    return failures


async def test_the_token_is_in_no_log_record_and_in_no_error(secured: Cluster, log: list[str]) -> None:
    async with Proxy(secured.admin_url) as proxy:
        failures = await fail_in_every_way(reach(secured, proxy.url), proxy)
        proxy.otherwise = slow(0)
        async with AdminClient(reach(secured, proxy.url)) as admin:
            await admin.tenants()
    assert any("try 1 failed" in text for text in log)
    assert [text for text in log if secured.token("admin") in text] == []
    assert [error for error in failures if secured.token("admin") in f"{error!r} {error} {error.__dict__}"] == []


async def test_the_token_is_in_no_repr(secured: Cluster) -> None:
    connection = reach(secured, secured.admin_url)
    async with AdminClient(connection) as admin:
        assert secured.token("admin") not in f"{connection!r} {admin!r} {admin.http!r}"


# Whole entries over the binary protocol: look-ups between brokers, TLS, credentials.


@pytest.fixture
async def filled(secured: Cluster) -> Range:
    """800 entries on a topic of broker 1, to be read from broker 0 on."""
    async with AdminClient(reach(secured, secured.admin_url)) as admin:
        topic = await topic_of_broker(admin, 1)
        await admin.create_subscription(topic, "keeps-everything")
        client = open_client(on_wire(secured))
        producer = client.create_producer(str(topic), batching_enabled=False, block_if_queue_full=True)
        for number in range(800):
            producer.send_async(b"%d" % number * 100, None)
        producer.flush()
        client.close()
        (whole,) = cut(TopicBounds.whole(str(topic), await admin.internal_stats(topic)), pair=0, publish_time=True)
        return whole


def on_wire(secured: Cluster, **changed: str | None) -> ClusterConnection:
    first = secured.service_url_tls.split(",")[0]
    return replace(reach(secured, secured.admin_url), service_url=first, **changed)  # type: ignore[arg-type]


def count(connection: ClusterConnection, part: Range) -> int:
    with EntryEngine(connection, retry_seconds=5) as engine:
        return sum(len(entries) for entries in engine.read(part))


async def test_entries_are_read_over_tls_from_the_broker_that_has_them(secured: Cluster, filled: Range) -> None:
    assert count(on_wire(secured), filled) == 800


async def test_a_client_certificate_is_enough_to_read_entries(secured: Cluster, filled: Range) -> None:
    security = Path(secured.trust_file).parent
    certificate = {
        "tls_certificate_file": str(security / "broker.cert.pem"),
        "tls_key_file": str(security / "broker.key.pem"),
    }
    assert count(on_wire(secured, token=None, **certificate), filled) == 800


@pytest.mark.long
async def test_a_broker_that_asks_for_new_credentials_keeps_the_connection(
    secured: Cluster, filled: Range, tmp_path: Path
) -> None:
    secret = (Path(secured.trust_file).parent / "secret.key").read_bytes()
    kept = tmp_path / "token"
    # Long enough for a connection to a busy broker.
    kept.write_text(jwt.encode({"sub": "admin", "exp": time.time() + 4}, secret, "HS256"))
    address = BrokerAddress.parse(secured.service_url_tls.split(",")[0])
    connection = WireConnection(address, on_wire(secured, token=None, token_file=str(kept)))
    kept.write_text(jwt.encode({"sub": "admin", "exp": time.time() + 60}, secret, "HS256"))
    # It asks a second after the end at the latest, and closes the connection one second later without an answer.
    assert connection.next_frame(6.5) is None
    connection.ask(1, frames.lookup(1, filled.topic, authoritative=False), about=filled.topic)
    connection.close()


async def test_a_role_that_may_not_consume_is_not_allowed_to_read_entries(secured: Cluster, filled: Range) -> None:
    with pytest.raises(NotAllowed, match="may not be read by this role: grant it consume on wide"):
        count(on_wire(secured, token=secured.token("nobody")), filled)


@pytest.mark.parametrize("token", ["not-a-jwt", None])
async def test_an_unknown_token_is_unauthenticated_at_once(secured: Cluster, filled: Range, token: str | None) -> None:
    with pytest.raises(Unauthenticated, match="our credentials are not accepted"):
        count(on_wire(secured, token=token), filled)


async def test_a_broker_whose_certificate_is_not_trusted_is_not_read_from(secured: Cluster, filled: Range) -> None:
    with pytest.raises(PermissionDenied, match=r"is not trusted: .*Name its authority"):
        count(on_wire(secured, tls_trust_file=None), filled)


@pytest.mark.long
async def test_a_plain_port_that_is_taken_for_a_tls_one_is_told(secured: Cluster, filled: Range) -> None:
    plain = secured.service_url.split(",")[0].replace("pulsar:", "pulsar+ssl:")
    with pytest.raises(Unavailable, match="cannot be connected to"):
        count(replace(on_wire(secured), service_url=plain), filled)
