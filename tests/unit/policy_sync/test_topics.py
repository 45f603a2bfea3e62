"""Partitioned topics in reconciliation: what is merged, planned and remembered, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulsar_fleet.ledger.reconciliation_store import MergeBase
from pulsar_fleet.planning.apply.outcome import ChangeResult, Outcome, PlanResult
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Plan
from pulsar_fleet.policy_sync.merge.compare import ComparedResource, CompareOptions, DesiredState, compare
from pulsar_fleet.policy_sync.merge.deletion_plan import (
    MOST_AT_ONCE,
    allowed_deletions,
    deletion,
    deletion_batch,
    pending,
)
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity, MergeOptions, Rule
from pulsar_fleet.policy_sync.merge.plan import Target, growths, plan_deletions, plan_repair
from pulsar_fleet.policy_sync.merge.view import Item, View, items_of
from pulsar_fleet.policy_sync.reconcile.agreement import conclude, conflicts_of, written
from pulsar_fleet.snapshot.model import NamespaceState, SchemaState, Snapshot, TenantState, TopicState

FLEET = ("blue", "green")
NEW = "persistent://acme/orders/new"
TOPIC: Item = (Resource.TOPIC, NEW)
VERSIONS = [{"type": "JSON", "schema": text, "properties": {}} for text in ("one", "two", "other")]


def snapshot(cluster: str, partitions: int = 0, schemas: tuple[int, ...] = (), **properties: str) -> Snapshot:
    """A cluster with one namespace, and in it a partitioned topic unless it has 0 partitions."""
    return Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="k",
        known_clusters=(cluster,),
        tenants=(TenantState("acme", (), (cluster,)),),
        namespaces=(NamespaceState("acme/orders", {"replication_clusters": [cluster]}),),
        topics=(TopicState(NEW, partitions, dict(properties)),) if partitions else (),
        schemas=tuple(
            SchemaState(NEW, 7 + at, "JSON", VERSIONS[number]["schema"], {}, at) for at, number in enumerate(schemas)
        ),
    )


def base(**document: Any) -> dict[Item, MergeBase]:
    return {TOPIC: MergeBase(document=document, clusters=FLEET)}


def compared(
    blue: Snapshot, green: Snapshot, agreed: dict[Item, MergeBase] | None = None, **options: Any
) -> ComparedResource:
    listed = options.pop("listed", {})
    views = [
        View(cluster=side.cluster, items=items_of(side, FLEET), **listed.get(side.cluster, {}))
        for side in (blue, green)
    ]
    resources = compare(views, agreed or {}, CompareOptions(**options)).compared
    return next(resource for resource in resources if resource.item == TOPIC)


def planned(resource: ComparedResource, target: Snapshot) -> Plan:
    return plan_repair([resource], Target(snapshot=target), [], source="merge")


def steps(plan: Plan) -> list[tuple[str, str, str, Any]]:
    return [(change.action.value, change.resource.value, change.field, change.after) for change in plan.changes]


def test_a_missing_topic_is_created_with_partitions_and_then_schemas() -> None:
    blue, green = snapshot("blue", 3, (0, 1), owner="us"), snapshot("green")
    plan = planned(compared(blue, green), green)
    assert steps(plan) == [
        ("create", "topic", "", {"partitions": 3, "properties": {"owner": "us"}}),
        ("create", "schema", "", VERSIONS[:2]),
    ]
    # On this cluster alone, and under the namespace's own strategy for schemas.
    assert [dict(call.params) for call in plan.changes[0].calls] == [{"createLocalTopicOnly": "true"}]
    assert len(plan.changes[1].calls) == 2


def test_no_topic_is_created_where_its_namespace_is_missing() -> None:
    blue, green = snapshot("blue", 3, (0,)), replace(snapshot("green"), namespaces=())
    plan = planned(compared(blue, green), green)
    assert (plan.changes, {entry.reason for entry in plan.left_alone}) == (
        (),
        {"green does not have the namespace acme/orders"},
    )


@pytest.mark.parametrize("granularity", Granularity)
def test_each_side_gets_what_the_other_added(granularity: Granularity) -> None:
    agreed = base(**{"partitions": 2, "properties/owner": "us", "properties/tier": "1", "schemas": VERSIONS[:1]})
    blue = snapshot("blue", 2, (0, 1), owner="us", tier="1")
    green = snapshot("green", 5, (0,), owner="them")
    resource = compared(blue, green, agreed, merge=MergeOptions(granularity=granularity))
    plans = {side.cluster: planned(resource, side) for side in (blue, green)}
    assert steps(plans["green"]) == [("set", "schema", "", VERSIONS[:2])]
    assert steps(plans["blue"]) == [
        ("grow", "topic", "partitions", 5),
        ("set", "topic", "properties", {"owner": "them"}),
    ]
    assert [call.text() for call in plans["blue"].changes[1].calls] == [
        "DELETE /persistent/acme/orders/new/properties?key=tier",
        "PUT /persistent/acme/orders/new/properties",
    ]
    assert growths(plans["blue"]) == {plans["blue"].changes[0].id}
    assert resource.conflicts == ()


def test_the_larger_of_two_raised_counts_wins_without_a_conflict() -> None:
    blue, green = snapshot("blue", 5), snapshot("green", 3)
    for agreed in (base(partitions=2), {}):
        resource = compared(blue, green, agreed)
        assert (resource.merged.values["partitions"], resource.conflicts) == (5, ())
        assert (planned(resource, blue).changes, steps(planned(resource, green))) == (
            (),
            [("grow", "topic", "partitions", 5)],
        )


def test_written_values_are_agreed_and_an_unregistered_schema_is_not() -> None:
    blue, green = snapshot("blue", 3, (0,)), snapshot("green")
    resource = compared(blue, green)
    plan = planned(resource, green)
    outcomes = (Outcome.APPLIED, Outcome.FAILED)
    results = tuple(map(ChangeResult, plan.changes, outcomes))
    done = {"green": written(PlanResult(plan.id, "green", results))}
    agreed = conclude([resource], done, all_reachable=True).merge_bases
    assert agreed[TOPIC] == MergeBase(document={"partitions": 3}, clusters=FLEET)
    again = compared(blue, snapshot("green", 3), {TOPIC: agreed[TOPIC]})
    assert steps(planned(again, snapshot("green", 3))) == [("create", "schema", "", VERSIONS[:1])]


def test_histories_that_differ_are_a_conflict_and_neither_is_rewritten() -> None:
    blue, green = snapshot("blue", 2, (0, 1)), snapshot("green", 2, (0, 2))
    resource = compared(blue, green, base(partitions=2, schemas=VERSIONS[:1]))
    assert (resource.conflicts, resource.merged.decisions["schemas"].rule) == (("schemas",), Rule.NAME)
    (entry,) = planned(resource, green).left_alone
    assert "another schema history" in entry.reason


@pytest.mark.parametrize("cluster", FLEET)
def test_a_deleted_schema_stays_deleted_there_and_registered_elsewhere(cluster: str) -> None:
    blue, green = snapshot("blue", 2, (0,)), snapshot("green", 2)
    plan = planned(
        compared(blue, green, base(partitions=2, schemas=VERSIONS[:1])), {"blue": blue, "green": green}[cluster]
    )
    assert plan.changes == ()


def test_an_authority_removes_no_partition() -> None:
    blue, green = snapshot("blue", 2), snapshot("green", 5)
    desired = DesiredState(source="cluster:blue", items={TOPIC: {"partitions": 2}})
    (entry,) = planned(compared(blue, green, desired=desired), green).left_alone
    assert "none can be removed" in entry.reason


def test_a_topic_without_partitions_is_a_conflict_with_one_sentence() -> None:
    blue, green = snapshot("blue", 3), snapshot("green")
    listed = {"green": {"topics": {"acme/orders": {NEW}}}}
    resource = compared(blue, green, listed=listed)
    assert (resource.unpartitioned, resource.missing, resource.gone, resource.has_drift) == (("green",), (), (), True)
    (conflict,) = conflicts_of([resource])
    assert (conflict.field, conflict.winner) == ("partitions", "")
    assert {name: side["value"] for name, side in conflict.sides.items()} == {"blue": 3, "green": 0}
    plan = planned(resource, green)
    (entry,) = plan.left_alone
    assert (plan.changes, entry.reason.startswith(f"{NEW} is partitioned on blue and has no partitions on green")) == (
        (),
        True,
    )


def test_a_batch_has_no_more_than_a_person_reads_and_begins_with_topics() -> None:
    topics = [deletion((Resource.TOPIC, f"{NEW}-{number:03}"), {"partitions": 1}, "gone") for number in range(199)]
    others = [
        deletion((Resource.TENANT, "acme"), {}, "gone"),
        deletion((Resource.NAMESPACE, "acme/orders"), {}, "gone"),
    ]
    plan = deletion_batch("blue", [*others, *topics])
    assert len(plan.changes) == MOST_AT_ONCE
    assert plan.changes[-1].name == "acme/orders"
    rest = [change for change in others if change not in plan.changes]
    assert [change.name for change in deletion_batch("blue", rest).changes] == ["acme"]


def test_a_topic_gone_on_one_side_waits_for_the_approval_of_its_batch() -> None:
    blue, green = snapshot("blue", 3, owner="us"), snapshot("green")
    resource = compared(blue, green, base(**{"partitions": 3, "properties/owner": "us"}))
    assert (resource.gone, planned(resource, blue).changes, planned(resource, green).changes) == (("green",), (), ())
    plan = plan_deletions([resource], Target(snapshot=blue))
    (change,) = plan.changes
    assert (change.action, change.before) == (Action.DELETE, {"partitions": 3, "properties": {"owner": "us"}})
    assert [call.text() for call in change.calls] == ["DELETE /persistent/acme/orders/new/partitions"]
    waiting = pending(plan, "pulsar-fleet reconcile blue green")
    assert waiting is not None
    assert waiting.command == f"pulsar-fleet reconcile blue green --propagate-deletes approve --allow {waiting.id}"
    assert allowed_deletions(plan, {waiting.id}) == allowed_deletions(plan, {change.id}) == {change.id}
    assert allowed_deletions(plan, {"another"}) == frozenset()
    grown = compared(snapshot("blue", 4, owner="us"), green, base(**{"partitions": 3, "properties/owner": "us"}))
    assert (grown.conflicts, plan_deletions([grown], Target(snapshot=blue)).changes) == (("",), ())
