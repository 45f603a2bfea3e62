"""What is read of a real cluster, and that the catalogues know all of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.version_differences import set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import FUNCTIONS, PACKAGES
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound, Unavailable
from pulsar_fleet.cluster.names import POLICY_EVENTS, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE, Kind, unknown_fields
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE, topic_comparable, unknown_topic_fields
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.statistics import cursors_in_stats
from pulsar_fleet.cluster.versions import HOLDS_SCALABLE_TOPICS, KEEPS_TOPIC_POLICIES, version_numbers
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.migration.prepare.compaction import compact
from pulsar_fleet.snapshot.collect import collect, collect_into
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.resources import subscriptions_in_info
from pulsar_fleet.snapshot.store.reader import StoredSnapshot, load_snapshot, store_snapshot
from pulsar_fleet.snapshot.store.writer import SnapshotWriter

pytestmark = pytest.mark.versions

REDACTOR = Redactor(b"a key of the tests")
ODD_NAMES = {"a+b", "a b", "50%", "a/b", "ü"}
Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
OFFLOAD = {
    "managedLedgerOffloadDriver": "aws-s3",
    "s3ManagedLedgerOffloadBucket": "bucket",
    "s3ManagedLedgerOffloadRegion": "eu-west-1",
    "s3ManagedLedgerOffloadCredentialId": "id",
    "s3ManagedLedgerOffloadCredentialSecret": "very-hush-hush",
    "managedLedgerOffloadThresholdInBytes": 100_000,
}


async def read(admin: AdminClient, namespace: NamespaceName) -> Snapshot:
    return await collect(admin, Selection(namespaces=frozenset({namespace})), redactor=REDACTOR, must_exist=True)


async def test_the_catalogue_knows_every_field_of_a_namespace(
    on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    assert unknown_fields(await on_blue.namespace(name) or {}) == ()


async def test_the_catalogue_knows_every_field_of_a_topics_policies(
    on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    documents = [policies.policies for policies in (await read(on_blue, name)).topic_policies]
    assert [unknown_topic_fields(document) for document in documents] == [(), ()]


async def test_an_estate_is_read_whole(on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    snapshot = await read(on_blue, name)
    events = str(TopicName(name, "events"))
    assert snapshot.complete
    assert [(topic.name.rpartition("/")[2], topic.partitions, topic.properties) for topic in snapshot.topics] == [
        ("ticks", 2, {}),
        ("events", 3, {"team": "billing"}),
        ("plain", 0, {"kind": "log"}),
    ]
    assert [(schema.topic, schema.version) for schema in snapshot.schemas] == [(events, 0), (events, 1)]
    assert {(subscription.topic == events, subscription.name) for subscription in snapshot.subscriptions} == {
        (True, "billing"),
        (True, "audit/all"),
        (False, "tail"),
    }
    assert len(snapshot.subscriptions) == 3 + 3 + 1
    assert {policies.scope for policies in snapshot.topic_policies} == {"local", "global"}
    assert snapshot.brokers[0].configuration["clusterName"] == "blue"


async def test_an_estate_sets_nearly_every_policy(
    on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make
) -> None:
    """So that what is proven with the estate is proven of the catalogue."""
    name = new_namespace()
    await make_estate(on_blue, name)
    snapshot = await read(on_blue, name)
    version = version_numbers(snapshot.oldest_version())
    supported = [policy for policy in CATALOGUE if version_numbers(policy.since) <= version]
    fields = {policy.field for policy in supported if policy.comparable and policy.kind is not Kind.AT_CREATION}
    # The first two need a plug-in or an object of the cluster, the others cannot be set alone without a second cluster.
    unset = {"entryFilters", "resource_group_name", "encryption_required", "allowed_clusters"}
    # Of what no estate can hold on a cluster before 5.0.
    unset |= {"scalableTopicAutoScalePolicy"} & fields
    # Its other value is refused beside the estate's `is_allow_auto_update_schema` (5.0).
    unset |= {"is_allow_auto_update_schema_with_replicator"} & fields
    assert fields - set(comparable(snapshot.namespaces[0].policies, "blue")) == unset
    local = next(policies for policies in snapshot.topic_policies if policies.scope == "local")
    topic_fields = {policy.field for policy in TOPIC_CATALOGUE if version_numbers(policy.since) <= version}
    topic_unset = {"entryFilters", "offloadPolicies", "replicationClusters", "shadowTopics", "isGlobal"}
    assert topic_fields - set(topic_comparable(local.policies)) == topic_unset


async def test_the_time_of_a_topics_policies_is_when_they_were_last_set(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    topic = TopicName(name, "plain")
    await on_blue.create_topic(topic)
    times = []
    for value in (1, 2):
        await on_blue.post(f"/{topic.path}/maxProducers", value)
        times.append((await read(on_blue, name)).topic_policies[0].updated_at)
    assert times[0] < times[1]


async def test_policies_of_a_deleted_topic_are_gone(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    topic = TopicName(name, "plain")
    await on_blue.create_topic(topic)
    await on_blue.post(f"/{topic.path}/maxProducers", 1)
    await on_blue.delete(f"/{topic.path}")
    assert (await read(on_blue, name)).topic_policies == ()


async def test_the_last_change_of_each_partition_of_the_policy_events_is_read(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    partitioned = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    await on_blue.post(f"/namespaces/{name.path}/autoTopicCreation", partitioned)
    topics = [TopicName(name, f"t{number}") for number in range(6)]
    for topic in topics:
        await on_blue.create_topic(topic)
        await on_blue.post(f"/{topic.path}/maxConsumers", 20)
    for topic in topics:
        await on_blue.delete(f"/{topic.path}")
    assert await on_blue.topics(name) == ()
    for _ in range(5):
        assert (await read(on_blue, name)).topic_policies == ()


async def test_no_secret_leaves_the_cluster_with_a_snapshot(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make, tmp_path: Path
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    await on_blue.post(f"/namespaces/{name.path}/offloadPolicies", OFFLOAD)
    snapshot = await read(on_blue, name)
    store_snapshot(Artefacts.open(str(tmp_path)), "run", snapshot, name="source")
    assert "very-hush-hush" not in str(snapshot)
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"very-hush-hush" not in stored


async def test_a_snapshot_of_a_cluster_comes_back_from_its_files(
    on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make, tmp_path: Path
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    snapshot = await read(on_blue, name)
    artefacts = Artefacts.open(str(tmp_path))
    assert load_snapshot(artefacts, store_snapshot(artefacts, "run", snapshot, name="source")) == snapshot


async def test_a_selected_namespace_that_is_not_there_is_named(on_blue: AdminClient) -> None:
    with pytest.raises(NotFound, match="blue has no nobody/nothing"):
        await read(on_blue, NamespaceName.parse("nobody/nothing"))


async def test_the_tenant_of_a_namespace_that_is_not_there_yet_is_read(
    on_blue: AdminClient, new_namespace: NewNamespace
) -> None:
    name = new_namespace()
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": ["owner"], "allowedClusters": ["blue"]})
    snapshot = await collect(on_blue, Selection(namespaces=frozenset({name})), redactor=REDACTOR)
    assert [(tenant.name, tenant.admin_roles) for tenant in snapshot.tenants] == [(name.tenant, ("owner",))]
    assert snapshot.namespaces == ()


async def test_the_brokers_own_namespaces_are_left_out(blue: ClusterConnection) -> None:
    # Other tests leave topics that cannot be read: they are not tried for long.
    async with AdminClient(blue, retry_seconds=0.5) as admin:
        snapshot = await collect(admin, redactor=REDACTOR)
    assert not {"pulsar/system", "public/default"} & {namespace.name for namespace in snapshot.namespaces}


@pytest.mark.needs_pulsar("4.0", "an older broker loads such a topic")
async def test_a_topic_that_cannot_be_read_makes_the_snapshot_incomplete(
    blue: ClusterConnection, on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    """A broker without the offloader that a topic asks for cannot even tell where its cursors stand."""
    name = new_namespace()
    await make_namespace(on_blue, name)
    topic = TopicName(name, "events")
    await on_blue.create_partitioned_topic(topic, 1)
    await on_blue.post(f"/{topic.path}/offloadPolicies", OFFLOAD)
    async with AdminClient(blue, retry_seconds=0.5) as admin:
        snapshot = await read(admin, name)
    assert [note.resource for note in snapshot.unreadable] == [f"subscriptions of {topic}"]
    assert [(row.name, row.partitions) for row in snapshot.topics] == [(str(topic), 1)]


@pytest.mark.needs_pulsar("4.0", "an older broker deletes a topic's policies with its partitions")
async def test_a_partitioned_topic_is_read_whichever_of_its_partitions_exist(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    """A broker deletes inactive partitions and keeps the topic; then it answers 500 about the topic."""
    name = new_namespace()
    await make_namespace(on_blue, name)
    none, some = TopicName(name, "none"), TopicName(name, "some")
    for topic in (none, some):
        await on_blue.create_partitioned_topic(topic, 3, {"team": "billing"})
        await on_blue.post_schema(topic, {"type": "STRING", "schema": "", "properties": {}})
    await on_blue.post(f"/{none.path}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5})
    await on_blue.create_subscription(some.partition(1), "kept")
    for partition in (*none.partitions(3), some.partition(0), some.partition(2)):
        await on_blue.delete(f"/{partition.path}", force=True)
    with pytest.raises(Unavailable, match="500"):
        await on_blue.internal_info(none, answered_retry_seconds=0)
    snapshot = await read(on_blue, name)
    assert snapshot.unreadable == ()
    assert [(row.name, row.partitions, row.properties) for row in snapshot.topics] == [
        (str(topic), 3, {"team": "billing"}) for topic in (none, some)
    ]
    assert [row.topic for row in snapshot.schemas] == [str(none), str(some)]
    assert [(row.partition, row.name) for row in snapshot.subscriptions] == [(str(some.partition(1)), "kept")]
    assert [row.topic for row in snapshot.topic_policies] == [str(none)]


@pytest.mark.cluster
async def test_one_unreadable_namespace_leaves_the_others_readable(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make, peer: str
) -> None:
    """A namespace whose cluster list leaves out the serving cluster: every call but that for its policies is 412."""
    name = new_namespace()
    await make_namespace(on_blue, name)
    await on_blue.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue", peer]})
    odd = NamespaceName(name.tenant, "elsewhere")
    await on_blue.put_namespace(odd, {"replication_clusters": [peer]})
    snapshot = await collect(on_blue, Selection(tenants=frozenset({name.tenant})), redactor=REDACTOR)
    (note,) = snapshot.unreadable
    assert (note.resource, "in clusters list" in note.detail) == (str(odd), True)
    assert [row.name for row in snapshot.namespaces] == [str(name)]


@pytest.mark.parametrize("local", ["a+b", "a b%2Fc", "a%3Bb", "100%"])
async def test_the_schema_of_an_oddly_named_topic_is_its_own(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make, local: str
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    topic = TopicName(name, local)
    await on_blue.create_topic(topic)
    await on_blue.post_schema(topic, {"type": "STRING", "schema": "", "properties": {"of": local}})
    snapshot = await read(on_blue, name)
    assert [(row.topic, row.properties) for row in snapshot.schemas] == [(str(topic), {"of": local})]
    assert snapshot.unreadable == ()


async def test_what_vanishes_while_it_is_read_is_noted_and_nothing_is_wrong(
    blue: ClusterConnection, on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    async with VanishingClient(blue, name) as admin:
        snapshot = await read(admin, name)
    assert snapshot.complete
    assert [note.problem for note in snapshot.notes if note.resource == str(name)] == ["deleted"]


class VanishingClient(AdminClient):
    """Deletes the namespace right after it was listed, as another operator could."""

    def __init__(self, connection: ClusterConnection, doomed: NamespaceName) -> None:
        super().__init__(replace(connection))
        self._doomed = doomed

    async def namespaces(self, tenant: str) -> tuple[NamespaceName, ...]:
        listed = await super().namespaces(tenant)
        await self.delete(f"/namespaces/{self._doomed.path}", force=True)
        while await self.namespace(self._doomed):
            await asyncio.sleep(0.1)
        return listed


async def test_a_snapshot_takes_six_calls_for_a_namespace_and_three_for_a_topic(
    on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    empty = (await read(on_blue, name)).calls
    plain = [TopicName(name, f"plain-{number}") for number in range(10)]
    partitioned = [TopicName(name, f"cut-{number}") for number in range(10)]
    await asyncio.gather(*(on_blue.create_topic(topic) for topic in plain))
    await asyncio.gather(*(on_blue.create_partitioned_topic(topic, 2) for topic in partitioned))
    filled = (await read(on_blue, name)).calls
    second = NamespaceName(name.tenant, "second")
    await on_blue.put(f"/namespaces/{second.path}")
    async with AdminClient(on_blue.connection) as admin:
        both = await collect(admin, Selection(tenants=frozenset({name.tenant})), redactor=REDACTOR)
    assert filled - empty == 2 * 10 + 3 * 10
    lists_scalable_topics = HOLDS_SCALABLE_TOPICS.holds(both.oldest_version())
    assert both.calls - filled <= 6 + lists_scalable_topics


@pytest.mark.cluster
async def test_what_lies_outside_of_tenants_is_read_with_secrets_redacted(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make, peer: str
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    snapshot = await read(on_blue, name)
    registered = next(cluster for cluster in snapshot.clusters if cluster.name == peer)
    assert registered.data["serviceUrl"] == "http://127.0.0.9:8080"
    assert registered.failure_domains == {"rack-1": {"brokers": ["broker-1:8080"]}}
    assert registered.isolation["gold"]["primary"] == ["broker-1"]
    assert peer in snapshot.known_clusters
    group = next(resource_group for resource_group in snapshot.resource_groups if resource_group.name == peer)
    assert group.limits["publishRateInMsgs"] == 7
    assert "very-hush-hush" not in str(snapshot)


@pytest.fixture
async def peer(on_blue: AdminClient) -> AsyncIterator[str]:
    """A cluster that blue knows, with everything that can be set for one, and a resource group of the same name."""
    name = f"peer-{uuid.uuid4().hex[:8]}"
    policy = {
        "namespaces": ["acme/.*"],
        "primary": ["broker-1"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    data = {"serviceUrl": "http://127.0.0.9:8080", "authenticationParameters": "token:very-hush-hush"}
    await on_blue.put_cluster(name, data)
    await on_blue.post(f"/clusters/{name}/failureDomains/rack-1", {"brokers": ["broker-1:8080"]})
    await on_blue.post(f"/clusters/{name}/namespaceIsolationPolicies/gold", policy)
    await on_blue.put(f"/resourcegroups/{name}", {"publishRateInMsgs": 7})
    yield name
    await on_blue.delete(f"/resourcegroups/{name}")
    await on_blue.delete(f"/clusters/{name}/namespaceIsolationPolicies/gold")
    await on_blue.delete(f"/clusters/{name}/failureDomains/rack-1")
    await on_blue.delete(f"/clusters/{name}")


async def test_a_cluster_without_functions_and_packages_says_so_and_is_complete(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    snapshot = await read(on_blue, name)
    assert [(note.resource, note.problem) for note in snapshot.notes] == [
        (FUNCTIONS, "not offered"),
        (PACKAGES, "not offered"),
    ]
    assert snapshot.complete


async def test_topics_are_loaded_only_for_the_properties_of_their_subscriptions(
    on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    plain = TopicName(name, "plain")
    await on_blue.put(f"{plain.subscription_path('tail')}/properties", {"team": "billing"})
    await on_blue.put(f"/{plain.path}/unload")
    results = []
    for load in (False, True):
        snapshot = await collect(on_blue, Selection(namespaces=frozenset({name})), redactor=REDACTOR, load_topics=load)
        metrics = (await on_blue.http.call("GET", "/metrics/")).text
        properties = next(
            subscription.properties for subscription in snapshot.subscriptions if subscription.name == "tail"
        )
        results.append((f'topic="{plain}"' in metrics, snapshot.loaded_topics, properties))
    assert results == [(False, False, {}), (True, True, {"team": "billing"})]


async def test_a_pattern_selects_by_the_whole_name(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    await on_blue.put(f"/namespaces/{name.tenant}/orders-old")
    snapshot = await collect(
        on_blue, Selection.parse([f"re:{name.tenant}/ord[a-z]+"]), redactor=REDACTOR, must_exist=True
    )
    assert [namespace.name for namespace in snapshot.namespaces] == [str(name)]


async def test_a_snapshot_written_while_it_is_read_is_the_same_in_order(
    on_blue: AdminClient, new_namespace: NewNamespace, make_estate: Make, tmp_path: Path
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    for local in ("a", "z"):
        await on_blue.put(f"/namespaces/{name.tenant}/{local}")
        await on_blue.create_topic(TopicName(NamespaceName(name.tenant, local), "plain"))
    selection, artefacts = Selection(tenants=frozenset({name.tenant})), Artefacts.open(str(tmp_path))
    kept = await collect(on_blue, selection, redactor=REDACTOR)
    with SnapshotWriter(artefacts, "run", name="source") as writer:
        reference = writer.finish(await collect_into(writer, on_blue, selection, redactor=REDACTOR))
    stored = StoredSnapshot.open(artefacts, reference)
    assert replace(stored.load(), began=kept.began, ended=kept.ended) == kept
    assert {topic.name for topic in stored.load([str(name)]).topics} == {
        str(TopicName(name, "events")),
        str(TopicName(name, "plain")),
        str(TopicName(name, "ticks", persistent=False)),
    }


async def test_every_broker_tells_its_version(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    assert version_numbers((await read(on_blue, name)).oldest_version()) >= (3, 0)


async def test_a_subscription_has_its_plain_name_wherever_brokers_list_it(
    on_blue: AdminClient, new_namespace: NewNamespace
) -> None:
    """Brokers list cursors form-encoded; who looked for the plain name would take an idle subscription for none."""
    name = new_namespace()
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"]})
    topic = TopicName(name, "events")
    await on_blue.create_topic(topic)
    for plain in ODD_NAMES:
        await on_blue.create_subscription(topic, plain)
    assert {
        subscription.name for subscription in subscriptions_in_info(topic, await on_blue.internal_info(topic))
    } == ODD_NAMES
    assert set(cursors_in_stats(await on_blue.internal_stats(topic))) == ODD_NAMES


async def test_policies_that_a_compaction_of_pulsar_3_0_may_hide_are_unknown(
    on_blue: AdminClient, new_namespace: NewNamespace, make_namespace: Make
) -> None:
    """It compacts the local and the global policies of a topic to those that were set last."""
    if KEEPS_TOPIC_POLICIES.holds(await on_blue.version()):
        pytest.skip("brokers keep both")
    name = new_namespace()
    await make_namespace(on_blue, name)
    topic = TopicName(name, "events")
    await on_blue.create_partitioned_topic(topic, 1)
    await set_policy(on_blue, f"/{topic.path}", "maxProducers", 9, {})
    local = await read(on_blue, name)
    assert [(row.scope, row.policies["maxProducerPerTopic"]) for row in local.topic_policies] == [("local", 9)]
    await set_policy(on_blue, f"/{topic.path}", "maxConsumers", 8, {"isGlobal": "true"})
    both = await read(on_blue, name)
    assert [row.scope for row in both.topic_policies] == ["global", "local"]
    events = TopicName(name, POLICY_EVENTS)
    await compact(on_blue, [events])
    hidden = await read(on_blue, name)
    assert hidden.topic_policies == ()
    (note,) = hidden.unreadable
    assert f"the local policies of {topic} are not known" in note.detail
