"""Partitioned topics by reconciliation of two real clusters, with the rules of events."""

from __future__ import annotations

import pytest
from tests.support.partitioned_topics import partitions, produce, properties, record, schemas
from tests.support.proxy import CallFault, answer, behind
from tests.support.reconciler import Reconciler

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_fleet.policy_sync.reconcile.request import Authority
from pulsar_fleet.policy_sync.recorded_apply import without_used_topics
from pulsar_fleet.report.reconciliation import conflict_lines, deletion_lines

pytestmark = pytest.mark.versions


@pytest.fixture
async def keeper(shared: NamespaceName, blue: ClusterConnection, green: ClusterConnection) -> Reconciler:
    """Reconciliation of its tenant, after a first run in which both hold the same."""
    reconciler = Reconciler.of(shared.tenant, blue, green)
    await reconciler.cycle()
    return reconciler


async def test_a_partitioned_topic_is_created_and_grown_with_its_schemas(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    topic = TopicName(shared, "orders")
    await on_blue.create_partitioned_topic(topic, 3, {"owner": "sales", "tier": "1"})
    await on_blue.post_schema(topic, record("id"))
    drift, repaired = await keeper.cycle()
    assert (drift.missing, repaired and repaired.problems) == (1, ())
    assert await partitions(on_green, topic) == 3
    assert await properties(on_green, topic) == {"owner": "sales", "tier": "1"}
    assert await schemas(on_green, topic) == await schemas(on_blue, topic) != []
    assert (await keeper.find()).drifting == 0
    await keeper.cycle_until_older(on_green, topic)
    await on_green.post(f"/{topic.path}/partitions", 5)
    await on_green.put(f"/{topic.path}/properties", {"owner": "billing"})
    await on_green.delete(f"/{topic.path}/properties", key="tier")
    await on_blue.post_schema(topic, record("id", "price"))
    drift, repaired = await keeper.cycle()
    assert (drift.conflicts, repaired and repaired.problems, drift.plans["blue"].needs_permission) == (0, (), 0)
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [5, 5]
    assert [await properties(admin, topic) for admin in (on_blue, on_green)] == [{"owner": "billing"}] * 2
    assert await schemas(on_green, topic) == await schemas(on_blue, topic)
    assert len(await schemas(on_green, topic)) == 2
    assert (await keeper.find()).drifting == 0


async def test_the_larger_partition_count_wins_and_an_authority_shrinks_nothing(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    topic = TopicName(shared, "orders")
    await on_blue.create_partitioned_topic(topic, 2)
    await keeper.cycle()
    await on_blue.post(f"/{topic.path}/partitions", 5)
    await keeper.find()
    await on_green.post(f"/{topic.path}/partitions", 3)
    await keeper.cycle()
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [5, 5]
    await on_green.post(f"/{topic.path}/partitions", 6)
    drift, _ = await keeper.cycle(authority=Authority.parse("cluster:blue"))
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [5, 6]
    assert drift.left_alone == 1


async def test_a_topic_without_partitions_is_listed_as_a_conflict_by_every_run(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler, green: ClusterConnection
) -> None:
    topic = TopicName(shared, "orders")
    produce(green, topic)
    await on_blue.create_partitioned_topic(topic, 3)
    for _ in range(2):
        drift, _ = await keeper.cycle()
        (line,) = (line for line in conflict_lines(drift) if line.startswith("CONFLICT"))
        assert f"topic {topic} partitions: 3 partitions on blue, 0 partitions on green; nothing is changed" in line
        assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [3, 0]
    (_, recorded), *_ = keeper.store.conflicts()
    assert (recorded.name, recorded.field, recorded.winner) == (str(topic), "partitions", "")
    await on_green.delete(f"/{topic.path}", force=True)
    drift, _ = await keeper.cycle()
    assert (drift.conflicts, await partitions(on_green, topic)) == (0, 3)


async def test_a_deleted_schema_is_not_registered_again_nor_deleted_elsewhere(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    topic = TopicName(shared, "orders")
    await on_blue.create_partitioned_topic(topic, 2)
    await on_blue.post_schema(topic, record("id"))
    await keeper.cycle()
    await on_green.delete(f"{topic.schema_path}/schema", force=True)
    for _ in range(2):
        drift, _ = await keeper.cycle()
        assert (len(await schemas(on_blue, topic)), await schemas(on_green, topic)) == (1, [])
        assert drift.drifting == 1


async def test_without_the_setting_no_topic_is_created(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    await on_blue.create_partitioned_topic(TopicName(shared, "orders"), 2)
    drift, _ = await keeper.cycle(partitioned_topics=False)
    assert (drift.drifting, await on_green.partitioned_topics(shared)) == (0, ())


async def test_a_deleted_topic_waits_for_the_approval_and_is_kept_while_in_use(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler, blue: ClusterConnection
) -> None:
    first, second = TopicName(shared, "first"), TopicName(shared, "second")
    for topic in (first, second):
        await on_blue.create_partitioned_topic(topic, 2)
    await keeper.cycle()
    await on_blue.create_subscription(first, "billing")
    produce(blue, first)
    for topic in (first, second):
        await on_green.delete(f"/{topic.path}/partitions")
    drift, _ = await keeper.cycle()
    pending = drift.deletions["blue"]
    assert pending.resources == tuple(f"topic {topic}: gone on green" for topic in (first, second))
    assert any(pending.command in line for line in deletion_lines(drift))
    drift, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE)
    assert (drift.plans["blue"].needs_permission, drift.deletions["blue"].id) == (2, pending.id)
    assert [await partitions(on_blue, topic) for topic in (first, second)] == [2, 2]
    allowed = {"propagate_deletes": PropagateDeletes.APPROVE, "allow": frozenset({pending.id})}
    _, repaired = await keeper.cycle(**allowed)
    assert repaired
    (problem,) = repaired.problems
    assert "has a backlog: 1 entry in subscription 'billing': it is not deleted" in problem
    assert [await partitions(on_blue, topic) for topic in (first, second)] == [2, -1]


async def test_a_topic_whose_statistics_cannot_be_read_is_not_deleted(
    on_blue: AdminClient, shared: NamespaceName
) -> None:
    topic = TopicName(shared, "events")
    await on_blue.create_topic(topic)
    deletion = Change.of(
        Difference(Resource.TOPIC, str(topic), "", Side.EXTRA, None, {"partitions": 0}),
        (),
        None,
        "it is gone on green",
        Action.DELETE,
        Hazard.DESTRUCTIVE,
    )
    plan = Plan(source="green", target="blue", changes=(deletion,))
    async with behind(on_blue, CallFault(f"GET .*{topic.path}/stats", answer(500))) as (admin, _):
        kept, (refused,) = await without_used_topics(plan, admin, {deletion.id})
    assert (kept.changes, refused.outcome) == ((), Outcome.REFUSED)
    assert refused.detail.startswith(f"it is unknown whether {topic} is in use, so it is not deleted: ")
    assert await without_used_topics(plan, on_blue, {deletion.id}) == (plan, ())


async def test_a_topic_deleted_on_one_side_and_edited_on_the_other_is_a_conflict(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, keeper: Reconciler
) -> None:
    topic = TopicName(shared, "orders")
    await on_blue.create_partitioned_topic(topic, 2)
    await keeper.cycle()
    await on_green.delete(f"/{topic.path}/partitions")
    await on_blue.put(f"/{topic.path}/properties", {"owner": "billing"})
    drift, _ = await keeper.cycle(propagate_deletes=PropagateDeletes.APPROVE)
    (conflict,) = drift.listed_conflicts
    assert (conflict.field, drift.deletions) == ("", {})
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [2, -1]
    await keeper.cycle(choose={conflict.id: "blue"})
    assert [await partitions(admin, topic) for admin in (on_blue, on_green)] == [2, 2]
    assert await properties(on_green, topic) == {"owner": "billing"}
