"""Plans carried out on a real cluster: what is made, what is refused, and what happens when somebody was faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pulsar
import pytest
from tests.support.following_proxy import FollowingProxy

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.prepare.freeze import recreate_missing
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import Outcome, PlanResult
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.changes.namespaces import setting
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan
from pulsar_fleet.snapshot.collect import collect

pytestmark = pytest.mark.versions

REDACTOR = Redactor(b"a key of the tests")
Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
SECRET = "very-hush-hush"


async def plan(source: AdminClient, target: AdminClient, namespace: NamespaceName) -> Plan:
    selection = Selection(namespaces=frozenset({namespace}))
    ours = await collect(source, selection, redactor=REDACTOR, must_exist=True, load_topics=True)
    return plan_changes(ours, await collect(target, selection, redactor=REDACTOR, load_topics=True))


async def apply(plan: Plan, target: AdminClient, *allow: str, secrets: dict[str, str] | None = None) -> PlanResult:
    return await apply_plan(plan, target, Ledger.open(), "run", redactor=REDACTOR, allow=allow, secrets=secrets)


def outcomes(applied: PlanResult) -> list[Outcome]:
    return [result.outcome for result in applied.results]


def one_change(namespace: NamespaceName, change: Change) -> Plan:
    return Plan(source="blue", target="green", changes=(change,))


@pytest.fixture
async def both(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> NamespaceName:
    """A namespace that both clusters have, without policies."""
    name = new_namespace()
    await make_namespace(on_blue, name)
    await make_namespace(on_green, name)
    return name


async def test_a_value_that_another_broker_still_remembers_is_read_again(
    both: NamespaceName, on_green: AdminClient
) -> None:
    change = setting(BY_FIELD["schema_compatibility_strategy"], str(both), None, "FORWARD")
    async with FollowingProxy([on_green.connection.admin_url], old_seconds=1.0) as proxy:
        connection = replace(on_green.connection, admin_url=proxy.url)
        async with AdminClient(connection) as behind:
            applied = await apply(one_change(both, change), behind)
    assert outcomes(applied) == [Outcome.APPLIED]


@pytest.mark.needs_pulsar("5.0", "a policy for replicators")
@pytest.mark.parametrize("wanted", [True, False])
async def test_replicators_are_excepted_on_an_existing_namespace(
    both: NamespaceName, on_blue: AdminClient, on_green: AdminClient, wanted: bool
) -> None:
    path, flag = f"/namespaces/{both.path}/isAllowAutoUpdateSchema", "is_allow_auto_update_schema_with_replicator"
    await on_blue.post(path, False, allowAutoUpdateSchemaWithReplicator=wanted)
    await on_green.post(path, False, allowAutoUpdateSchemaWithReplicator=not wanted)
    planned = await plan(on_blue, on_green, both)
    assert [change.field for change in planned.changes] == [flag]
    assert outcomes(await apply(planned, on_green)) == [Outcome.APPLIED]
    assert (await on_green.namespace(both) or {})[flag] is wanted
    assert (await plan(on_blue, on_green, both)).empty


async def test_policies_of_an_existing_namespace_become_equal_field_by_field(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    make_estate: Make,
    make_namespace: Make,
    records: Path,
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    await make_namespace(on_green, name)
    planned = await plan(on_blue, on_green, name)
    applied = await apply(planned, on_green, *(change.id for change in planned.needing_permission()))
    assert [(result.change.label, result.detail) for result in applied.not_in_place()] == []
    assert (await plan(on_blue, on_green, name)).changes == ()


async def test_policies_that_the_source_does_not_set_are_unset(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    make_estate: Make,
    make_namespace: Make,
    records: Path,
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    await on_blue.create_partitioned_topic(TopicName(name, "events"), 3)
    await make_estate(on_green, name)
    planned = await plan(on_blue, on_green, name)
    applied = await apply(planned, on_green, *(change.id for change in planned.needing_permission()))
    assert [(result.change.label, result.detail) for result in applied.not_in_place()] == []
    assert (await plan(on_blue, on_green, name)).changes == ()


async def test_nothing_on_the_target_alone_is_deleted(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    extra = TopicName(both, "only-here")
    await on_green.create_topic(extra)
    planned = await plan(on_blue, on_green, both)
    await apply(planned, on_green)
    assert [entry.name for entry in planned.left_alone] == [str(extra)]
    assert extra in await on_green.topics(both)


async def test_a_plan_can_be_applied_twice(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_estate: Make, records: Path
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    planned = await plan(on_blue, on_green, name)
    await apply(planned, on_green)
    again = await apply(planned, on_green)
    assert {result.outcome for result in again.results} == {Outcome.ALREADY}
    assert (await plan(on_blue, on_green, name)).empty


async def test_a_run_that_was_cut_is_finished_by_the_next(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_estate: Make, records: Path
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    planned = await plan(on_blue, on_green, name)
    cut = next(n for n, change in enumerate(planned.changes) if change.resource is Resource.SCHEMA) + 1
    await apply(replace(planned, changes=planned.changes[:cut]), on_green)
    assert (await on_green.namespace(name) or {})["schema_compatibility_strategy"] == "ALWAYS_COMPATIBLE"
    rest = await plan(on_blue, on_green, name)
    await apply(rest, on_green, *(change.id for change in rest.needing_permission()))
    assert (await plan(on_blue, on_green, name)).empty


async def test_a_value_that_changed_after_the_plan_is_a_conflict_and_stays(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    await on_blue.post(f"/namespaces/{both.path}/maxProducersPerTopic", 5)
    planned = await plan(on_blue, on_green, both)
    await on_green.post(f"/namespaces/{both.path}/maxProducersPerTopic", 7)
    applied = await apply(planned, on_green)
    assert outcomes(applied) == [Outcome.CONFLICT]
    assert applied.results[0].detail == "expected not set, found 7: plan again"
    assert (await on_green.namespace(both) or {})["max_producers_per_topic"] == 7


async def test_a_namespace_that_appeared_after_the_plan_stops_what_lies_in_it(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    make_estate: Make,
    make_namespace: Make,
    records: Path,
) -> None:
    name = new_namespace()
    await make_estate(on_blue, name)
    planned = await plan(on_blue, on_green, name)
    await make_namespace(on_green, name)
    applied = await apply(planned, on_green)
    by_kind = {(result.change.resource, result.outcome) for result in applied.results}
    assert (Resource.NAMESPACE, Outcome.CONFLICT) in by_kind
    assert {result.outcome for result in applied.results if result.change.resource is Resource.TOPIC} == {
        Outcome.SKIPPED
    }


async def test_a_list_without_the_own_cluster_is_refused_and_no_topic_is_lost(
    on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "precious")
    await on_green.create_topic(topic)
    change = setting(BY_FIELD["replication_clusters"], str(both), ["green"], ["blue"])
    applied = await apply(one_change(both, change), on_green, change.id)
    assert outcomes(applied) == [Outcome.REFUSED]
    assert topic in await on_green.topics(both)


async def test_a_call_that_deletes_runs_only_when_its_id_is_allowed(on_green: AdminClient, both: NamespaceName) -> None:
    """Even when the plan says that it is harmless."""
    topic = TopicName(both, "old")
    await on_green.create_topic(topic)
    change = Change(
        resource=Resource.TOPIC,
        name=str(topic),
        field="",
        action=Action.UNSET,
        calls=(bare("DELETE", f"/{topic.path}"),),
        before={"partitions": 0, "properties": {}},
        after=None,
        hazard=Hazard.NONE,
        reason="",
    )
    assert outcomes(await apply(one_change(both, change), on_green)) == [Outcome.REFUSED]
    assert topic in await on_green.topics(both)
    assert outcomes(await apply(one_change(both, change), on_green, change.id)) == [Outcome.APPLIED]


async def test_a_shorter_ttl_runs_only_when_its_id_is_allowed(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    await on_blue.post(f"/namespaces/{both.path}/messageTTL", 60)
    planned = await plan(on_blue, on_green, both)
    assert outcomes(await apply(planned, on_green)) == [Outcome.REFUSED]
    assert outcomes(await apply(planned, on_green, "another-id")) == [Outcome.REFUSED]
    assert outcomes(await apply(planned, on_green, planned.changes[0].id)) == [Outcome.APPLIED]


async def test_policies_that_the_broker_would_take_and_break_on_are_not_written(
    on_green: AdminClient, new_namespace: NewNamespace, records: Path
) -> None:
    name = new_namespace()
    await on_green.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["green"]})
    document: Json = {"replication_clusters": ["green"], "max_producers_per_topic": -5}
    change = Change(
        resource=Resource.NAMESPACE,
        name=str(name),
        field="",
        action=Action.CREATE,
        calls=(with_body("PUT", f"/namespaces/{name.path}", document),),
        before=None,
        after=document,
        hazard=Hazard.NONE,
        reason="",
    )
    assert outcomes(await apply(one_change(name, change), on_green)) == [Outcome.REFUSED]
    assert await on_green.namespace(name) is None


async def test_retention_and_quota_change_together_in_both_directions(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    for megabytes in (2000, 10):
        quota = {"limitSize": (megabytes - 1) << 20, "limitTime": -1, "policy": "producer_exception"}
        if megabytes == 10:
            await on_blue.post(f"/namespaces/{both.path}/backlogQuota", quota)
        retention = {"retentionTimeInMinutes": 600, "retentionSizeInMB": megabytes}
        await on_blue.post(f"/namespaces/{both.path}/retention", retention)
        await on_blue.post(f"/namespaces/{both.path}/backlogQuota", quota)
        planned = await plan(on_blue, on_green, both)
        applied = await apply(planned, on_green, *(change.id for change in planned.needing_permission()))
        assert outcomes(applied) == [Outcome.APPLIED, Outcome.APPLIED]


async def test_a_secret_travels_without_being_written_down(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    offload = {
        "managedLedgerOffloadDriver": "aws-s3",
        "s3ManagedLedgerOffloadBucket": "bucket",
        "s3ManagedLedgerOffloadRegion": "eu-west-1",
        "s3ManagedLedgerOffloadCredentialId": "id",
        "s3ManagedLedgerOffloadCredentialSecret": SECRET,
        "managedLedgerOffloadThresholdInBytes": 100_000,
    }
    await on_blue.post(f"/namespaces/{both.path}/offloadPolicies", offload)
    planned = await plan(on_blue, on_green, both)
    assert outcomes(await apply(planned, on_green)) == [Outcome.REFUSED]
    secrets = await read_secrets(planned, on_blue, REDACTOR)
    assert outcomes(await apply(planned, on_green, secrets=secrets)) == [Outcome.APPLIED]
    written = (await on_green.namespace(both) or {})["offload_policies"]["s3ManagedLedgerOffloadCredentialSecret"]
    assert written == SECRET
    assert SECRET not in str(planned.to_json())
    assert SECRET not in str(Ledger.open().changes("run"))


async def test_every_change_is_in_the_ledger_with_both_values(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    await on_blue.post(f"/namespaces/{both.path}/maxProducersPerTopic", 5)
    await apply(await plan(on_blue, on_green, both), on_green)
    recorded = Ledger.open().changes("run")
    assert [(change.cluster, change.resource, change.before, change.after, change.outcome) for change in recorded] == [
        ("green", f"policy {both} max_producers_per_topic", None, 5, "applied")
    ]


async def test_a_plan_for_another_cluster_is_refused(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    planned = await plan(on_blue, on_green, both)
    with pytest.raises(PreconditionFailed, match="is for 'green'"):
        await apply(planned, on_blue)


async def test_partitions_grow_when_that_is_allowed(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "events")
    await on_blue.create_partitioned_topic(topic, 4)
    await on_green.create_partitioned_topic(topic, 2)
    planned = await plan(on_blue, on_green, both)
    assert outcomes(await apply(planned, on_green, planned.changes[0].id)) == [Outcome.APPLIED]
    assert (await on_green.partition_metadata(topic)).partitions == 4


async def test_progress_counts_every_change(on_blue: AdminClient, on_green: AdminClient, both: NamespaceName) -> None:
    await on_blue.post(f"/namespaces/{both.path}/maxProducersPerTopic", 5)
    await on_blue.post(f"/namespaces/{both.path}/maxConsumersPerTopic", 5)
    steps: list[tuple[int, int]] = []
    planned = await plan(on_blue, on_green, both)
    await apply_plan(
        planned, on_green, Ledger.open(), "run", redactor=REDACTOR, progress=lambda done, of: steps.append((done, of))
    )
    assert steps == [(1, 2), (2, 2)]


async def test_a_schema_that_the_broker_refuses_is_told_with_the_brokers_reason(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    """A strategy of the topic's own counts more than the namespace's, so opening that one does not help."""
    topic = TopicName(both, "events")
    record = '{"type": "record", "name": "Order", "fields": [{"name": "%s", "type": "string"}]}'
    await on_blue.put(f"/namespaces/{both.path}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    for admin in (on_blue, on_green):
        await admin.create_topic(topic)
    for field in ("id", "other"):
        await on_blue.post_schema(topic, {"type": "AVRO", "schema": record % field, "properties": {}})
    await on_green.put(f"/{topic.path}/schemaCompatibilityStrategy", "FULL")
    applied = await apply(await plan(on_blue, on_green, both), on_green)
    failed = [result for result in applied.results if result.outcome is Outcome.FAILED]
    assert [result.change.resource for result in failed] == [Resource.SCHEMA]
    assert "schema compatibility check with strategy FULL" in failed[0].detail


async def test_what_brokers_keep_among_the_properties_of_a_topic_stays(
    both: NamespaceName, on_blue: AdminClient, on_green: AdminClient, blue: ClusterConnection, green: ClusterConnection
) -> None:
    plain, partitioned = TopicName(both, "plain"), TopicName(both, "partitioned")
    places = (plain, *partitioned.partitions(2))
    await on_blue.create_topic(plain, {"owner": "sales"})
    await on_blue.create_partitioned_topic(partitioned, 2, {"owner": "sales"})
    await _write_alone(blue, plain, partitioned, writers=3)
    assert [await _epoch(on_blue, place) for place in places] == ["2"] * 3
    applied = await apply(await plan(on_blue, on_green, both), on_green)
    assert set(outcomes(applied)) == {Outcome.APPLIED}
    assert [await _epoch(on_green, place) for place in places] == [None] * 3
    await _write_alone(green, plain, partitioned, writers=5)
    assert (await plan(on_blue, on_green, both)).empty
    # Another property that differs is written without it.
    await on_blue.put(f"/{plain.path}/properties", {"owner": "stock"})
    await apply(await plan(on_blue, on_green, both), on_green)
    assert (await on_green.internal_info(plain))["properties"] == {"owner": "stock", "pulsar.topic.epoch": "4"}
    # Nor does a migration copy it when it creates a topic again that was deleted for inactivity.
    await on_green.delete(f"/{plain.path}")
    await recreate_missing(on_green, both, {plain: 0}, on_blue)
    assert (await on_green.internal_info(plain))["properties"] == {"owner": "stock"}


async def _write_alone(connection: ClusterConnection, *topics: TopicName, writers: int) -> None:
    """Producers with exclusive access one after the other: each counts the topic's epoch up."""

    def write() -> None:
        with closing(
            pulsar.Client(str(connection.service_url), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        ) as client:
            for _ in range(writers):
                for topic in topics:
                    client.create_producer(str(topic), access_mode=pulsar.ProducerAccessMode.Exclusive).close()

    await asyncio.to_thread(write)


async def _epoch(admin: AdminClient, topic: TopicName) -> str | None:
    properties = (await admin.internal_info(topic)).get("properties") or {}
    return properties.get("pulsar.topic.epoch")
