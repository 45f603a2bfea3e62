from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.partial_reads import CLUSTERS, Note
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind
from pulsar_fleet.planning.build import plan_changes, require_complete
from pulsar_fleet.planning.changes.namespaces import namespace_creation_calls
from pulsar_fleet.planning.comparison import compare, comparison_text
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan
from pulsar_fleet.planning.render import headline, plan_markdown, plan_text
from pulsar_fleet.snapshot.model import (
    SYSTEM_TOPIC,
    BrokerState,
    ClusterDataState,
    InventoryState,
    NamespaceState,
    ResourceGroupState,
    SchemaState,
    Snapshot,
    SubscriptionState,
    TenantState,
    TopicPolicyState,
    TopicState,
)

EVENTS = "persistent://acme/orders/events"
POLICIES = "persistent/acme/new/__change_events"
REPLICATORS = "is_allow_auto_update_schema_with_replicator"
FIVE = (BrokerState("localhost:8080", "5.0.1", {}),)
LISTS = {"replication_clusters": ["blue"]}


def snapshot(cluster: str, version: str = "4.2.4", **tables: Any) -> Snapshot:
    brokers = (BrokerState("localhost:8080", version, {}),)
    known_clusters = (cluster,)
    return Snapshot(
        cluster=cluster, began="", ended="", key_id="k", known_clusters=known_clusters, brokers=brokers, **tables
    )


def holding(cluster: str, policies: dict[str, Any], **tables: Any) -> Snapshot:
    document = {"replication_clusters": [cluster], **policies}
    return snapshot(
        cluster,
        tenants=(TenantState("acme", ("owner",), (cluster,)),),
        namespaces=(NamespaceState("acme/orders", document),),
        **tables,
    )


def schemas(*texts: str) -> tuple[SchemaState, ...]:
    return tuple(SchemaState(EVENTS, version, "AVRO", text, {}, 0) for version, text in enumerate(texts))


def topic(partitions: int, **properties: str) -> tuple[TopicState, ...]:
    return (TopicState(EVENTS, partitions, dict(properties)),)


def steps(plan: Plan) -> list[tuple[str, str, Any]]:
    return [(change.resource.value, change.field, change.after) for change in plan.changes]


def test_nothing_is_planned_when_nothing_differs() -> None:
    plan = plan_changes(holding("blue", {}), holding("green", {}))
    assert plan.empty
    assert headline(plan).startswith(
        "Nothing to change: green has all that a plan copies from blue. Not copied: messages"
    )


@pytest.mark.parametrize(
    ("own", "ours", "theirs", "sent"),
    [
        (False, {REPLICATORS: False}, {}, "false"),
        (False, {}, {REPLICATORS: False}, "true"),
        (True, {REPLICATORS: False}, {}, ""),
        (False, {REPLICATORS: False}, {REPLICATORS: False}, ""),
    ],
)
def test_replicators_are_excepted_where_producers_may_not_register(
    own: bool, ours: dict[str, bool], theirs: dict[str, bool], sent: str
) -> None:
    documents = ({"is_allow_auto_update_schema": own, **flags} for flags in (ours, theirs))
    clusters = (replace(holding(name, next(documents)), brokers=FIVE) for name in ("blue", "green"))
    calls = [call for change in plan_changes(*clusters).changes for call in change.calls]
    path = "/namespaces/acme/orders/isAllowAutoUpdateSchema"
    assert calls == ([with_body("POST", path, False, allowAutoUpdateSchemaWithReplicator=sent)] if sent else [])


def test_a_missing_namespace_is_one_call_with_the_translated_document() -> None:
    plan = plan_changes(holding("blue", {"message_ttl_in_seconds": 5}), snapshot("green"))
    assert [call.text() for change in plan.changes for call in change.calls] == [
        "PUT /tenants/acme",
        "PUT /namespaces/acme/orders",
    ]
    assert plan.changes[1].calls[0].body == {"replication_clusters": ["green"], "message_ttl_in_seconds": 5}


def test_what_exists_only_on_the_target_is_reported_and_left_alone() -> None:
    plan = plan_changes(holding("blue", {}), holding("green", {}, topics=topic(3)))
    assert plan.empty
    assert [(entry.name, entry.reason) for entry in plan.left_alone] == [(EVENTS, "exists only on the target")]


def test_a_schema_history_is_posted_in_order_under_an_open_strategy() -> None:
    source = holding("blue", {"schema_compatibility_strategy": "FULL"}, topics=topic(0), schemas=schemas("a", "b"))
    plan = plan_changes(source, holding("green", {"schema_compatibility_strategy": "BACKWARD"}, topics=topic(0)))
    opened, history, restored = plan.changes
    assert (opened.before, opened.after) == ("BACKWARD", "ALWAYS_COMPATIBLE")
    assert [call.body["schema"] for call in history.calls] == ["a", "b"]
    assert (restored.before, restored.after) == ("ALWAYS_COMPATIBLE", "FULL")


def test_a_single_version_needs_no_open_strategy() -> None:
    plan = plan_changes(
        holding("blue", {}, topics=topic(0), schemas=schemas("a")), holding("green", {}, topics=topic(0))
    )
    assert [change.resource for change in plan.changes] == [Resource.SCHEMA]


def test_only_the_missing_end_of_a_history_is_posted() -> None:
    source = holding("blue", {}, topics=topic(0), schemas=schemas("a", "b"))
    plan = plan_changes(source, holding("green", {}, topics=topic(0), schemas=schemas("a")))
    posted = [call.body for change in plan.changes if change.resource is Resource.SCHEMA for call in change.calls]
    assert [body["schema"] for body in posted] == ["b"]


def test_another_history_is_left_alone() -> None:
    source = holding("blue", {}, topics=topic(0), schemas=schemas("a", "b"))
    plan = plan_changes(source, holding("green", {}, topics=topic(0), schemas=schemas("x")))
    assert plan.empty
    assert "another schema history" in plan.left_alone[0].reason


@pytest.mark.parametrize("target", [(), (TopicState(EVENTS, 0, {"owner": "billing"}),)], ids=["new", "existing"])
def test_the_brokers_mark_of_a_redirected_topic_is_never_copied(target: tuple[TopicState, ...]) -> None:
    topics = (TopicState(EVENTS, 0, {"owner": "billing", "migrated": "true"}),)
    plan = plan_changes(holding("blue", {}, topics=topics), holding("green", {}, topics=target))
    assert [change.after for change in plan.changes] == [{"partitions": 0, "properties": {"owner": "billing"}}] * (
        not target
    )
    assert [(entry.name, entry.field) for entry in plan.left_alone] == [(EVENTS, "properties")]


def test_growing_partitions_needs_permission() -> None:
    plan = plan_changes(holding("blue", {}, topics=topic(12)), holding("green", {}, topics=topic(8)))
    assert [(change.action, change.hazard) for change in plan.needing_permission()] == [
        (Action.GROW, Hazard.IRREVERSIBLE)
    ]


def test_partitions_are_never_taken_away() -> None:
    assert plan_changes(holding("blue", {}, topics=topic(8)), holding("green", {}, topics=topic(12))).empty


@pytest.mark.parametrize(
    "source",
    [topic(0, **{"PULSAR.SHADOW_SOURCE": EVENTS}), (TopicState(f"{EVENTS}-partition-0", 0, {}),)],
)
def test_a_topic_that_cannot_be_copied_is_left_alone_with_subscriptions(source: tuple[TopicState, ...]) -> None:
    name = source[0].name
    subscriptions = (SubscriptionState(name, name, "s", "0:0", False),)
    assert plan_changes(holding("blue", {}, topics=source, subscriptions=subscriptions), holding("green", {})).empty


def test_a_shorter_ttl_needs_permission_except_on_a_topic_of_the_plan() -> None:
    policies = (TopicPolicyState(EVENTS, "local", {"messageTTLInSeconds": 5}, 0),)
    source = holding("blue", {}, topics=topic(1), topic_policies=policies)
    existing = plan_changes(source, holding("green", {}, topics=topic(1)))
    created = plan_changes(source, holding("green", {}))
    assert (len(existing.needing_permission()), len(created.needing_permission())) == (1, 0)


def test_a_policy_that_the_target_is_too_old_for_is_left_alone() -> None:
    source = holding("blue", {"allowed_topic_property_keys_for_metrics": ["team"]})
    target = replace(holding("green", {}), brokers=(BrokerState("localhost:8080", "4.0.7", {}),))
    plan = plan_changes(source, target)
    assert (plan.empty, plan.left_alone[0].reason) == (True, "needs Pulsar 4.2 on the target, which runs 4.0.7")


def test_a_namespace_is_created_without_what_the_target_is_too_old_for() -> None:
    source = holding("blue", {"allowed_topic_property_keys_for_metrics": ["team"], "futurePolicy": 1})
    target = replace(snapshot("green"), brokers=(BrokerState("localhost:8080", "4.0.7", {}),))
    plan = plan_changes(source, target)
    assert plan.changes[1].calls[0].body == {"replication_clusters": ["green"], "futurePolicy": 1}
    assert [(entry.field, entry.reason) for entry in plan.left_alone] == [
        ("allowed_topic_property_keys_for_metrics", "needs Pulsar 4.2 on the target, which runs 4.0.7")
    ]


@pytest.mark.parametrize(("ours", "theirs", "after"), [(False, None, False), (None, True, False), (True, False, True)])
def test_false_stands_for_a_topic_policy_that_cannot_be_unset(ours: Any, theirs: Any, after: Any) -> None:
    source, target = (
        holding(
            name,
            {},
            topics=topic(1),
            topic_policies=(TopicPolicyState(EVENTS, "local", {"schemaValidationEnforced": value}, 0),),
        )
        for name, value in (("blue", ours), ("green", theirs))
    )
    plan = plan_changes(source, target)
    assert [(change.after, [call.body for call in change.calls]) for change in plan.changes] == [(after, [after])]


def test_a_list_of_the_target_never_shrinks() -> None:
    target = replace(holding("green", {"replication_clusters": ["green", "third"]}), known_clusters=("green", "third"))
    assert plan_changes(holding("blue", {}), target).empty


def test_subscriptions_are_not_created_when_they_are_not_wanted() -> None:
    subscriptions = (SubscriptionState(EVENTS, EVENTS, "s", "0:0", False),)
    source = holding("blue", {}, topics=topic(0), subscriptions=subscriptions)
    assert plan_changes(source, holding("green", {}, topics=topic(0)), subscriptions=False).empty


def unread(snapshot: Snapshot, resource: str) -> Snapshot:
    return replace(snapshot, notes=(Note(resource, "unreadable", "it answered 500."),))


UNREAD = (
    (EVENTS, {"namespace"}),
    ("acme/orders", set()),
    ("acme", set()),
    ("namespaces of acme", set()),
    (f"schemas of {EVENTS}", {"namespace", "topic", "topic policy", "subscription"}),
    (f"subscriptions of {EVENTS}", {"namespace", "topic", "topic policy", "schema"}),
    (f"subscription properties of {EVENTS}", {"namespace", "topic", "topic policy", "schema"}),
    ("topic policies of acme/orders", {"namespace", "topic", "subscription", "schema"}),
)


@pytest.mark.parametrize("side", ["blue", "green"])
@pytest.mark.parametrize(("resource", "planned"), UNREAD)
def test_what_could_not_be_read_is_left_alone_and_the_rest_is_planned(
    resource: str, planned: set[str], side: str
) -> None:
    """Unknown on one side is unknown for the pair: it may exist on the target, or have changed on the source."""
    blue = replace(
        holding("blue", {}, topics=topic(0)),
        schemas=(SchemaState(EVENTS, 0, "STRING", "", {}, 0),),
        subscriptions=(SubscriptionState(EVENTS, EVENTS, "s", "0:0", False),),
        topic_policies=(TopicPolicyState(EVENTS, "local", {"maxProducerPerTopic": 3}, 0),),
    )
    other = NamespaceState("other/audit", {"replication_clusters": ["blue"]})
    blue = replace(blue, namespaces=(*blue.namespaces, other))
    sides = {"blue": blue, "green": snapshot("green")}
    plan = plan_changes(*(unread(state, resource) if name == side else state for name, state in sides.items()))
    assert {change.resource.value for change in plan.changes if "acme/orders" in change.name} == planned
    assert "other/audit" in {change.name for change in plan.changes}
    assert [(row.name, row.reason) for row in plan.left_alone if "read" in row.reason] == [
        (resource, f"it could not be read on {side}")
    ]


def with_subscriptions(cluster: str, *rows: SubscriptionState, loaded: bool = True) -> Snapshot:
    return replace(holding(cluster, {}, topics=topic(2), subscriptions=rows), loaded_topics=loaded)


def on_partition(index: int, name: str = "s", **properties: str) -> SubscriptionState:
    return SubscriptionState(EVENTS, f"{EVENTS}-partition-{index}", name, "0:0", False, properties)


def test_subscriptions_of_partitions_are_hidden_by_what_could_not_be_read() -> None:
    source = unread(with_subscriptions("blue", on_partition(1)), f"subscription properties of {EVENTS}")
    assert plan_changes(source, with_subscriptions("green")).empty


@pytest.mark.parametrize("unloaded", ["blue", "green"])
def test_properties_that_were_not_read_are_not_reported_as_equal(unloaded: str) -> None:
    source = with_subscriptions("blue", on_partition(0), on_partition(1, team="a"), loaded=unloaded != "blue")
    target = with_subscriptions("green", on_partition(0), on_partition(1), loaded=unloaded != "green")
    comparison = compare(source, target)
    assert (comparison.equal, comparison.unread) == (True, ("subscription properties of every topic",))
    assert "not compared: subscription properties of every topic" in comparison_text(comparison)
    assert [row.reason for row in comparison.first_left_alone] == [f"the snapshot of {unloaded} was taken without them"]
    assert compare(source, target, subscriptions=False).unread == ()


def test_a_plan_shows_the_partition_and_the_properties_of_a_subscription() -> None:
    plan = plan_changes(with_subscriptions("blue", on_partition(1, selector="a = 1")), with_subscriptions("green"))
    assert [call.path for call in plan.changes[0].calls] == [
        "/persistent/acme/orders/events-partition-1/subscription/s"
    ]
    (line,) = [line for line in plan_text(plan).splitlines() if "partition-1" in line]
    assert line.endswith('at earliest, with {"selector": "a = 1"}')


def test_subscriptions_of_the_partitions_of_a_new_topic_are_counted_once() -> None:
    rows = (on_partition(0), on_partition(1, team="a"), on_partition(0, "job"))
    plan = plan_changes(with_subscriptions("blue", *rows), holding("green", {}))
    assert len(plan.changes) == 4
    assert "2 partitions, 2 subscriptions" in plan_text(plan)
    assert {change.hazard.value for change in plan.changes} == {"none"}


def test_a_namespace_that_was_not_read_is_not_reported_as_equal() -> None:
    comparison = compare(unread(holding("blue", {}), "acme/audit"), holding("green", {}))
    assert comparison.equal
    assert comparison_text(comparison).startswith(
        "EQUAL  green has all that a plan copies from blue, except what could not be read (1 resource, not compared: "
        "acme/audit): "
    )


def test_the_names_of_clusters_are_needed() -> None:
    with pytest.raises(PreconditionFailed, match="names of the clusters that blue knows could not be read"):
        plan_changes(unread(holding("blue", {}), CLUSTERS), holding("green", {}))


def test_a_procedure_that_copies_everything_refuses_an_incomplete_snapshot() -> None:
    with pytest.raises(
        PreconditionFailed, match=rf"1 of the resources of blue could not be read: {EVENTS}: it answered"
    ):
        require_complete(unread(holding("blue", {}), EVENTS))


def test_a_vanished_topic_does_not_make_a_snapshot_incomplete() -> None:
    source = replace(holding("blue", {}), notes=(Note(EVENTS, "deleted", "It was gone."),))
    assert plan_changes(source, holding("green", {})).empty


def test_snapshots_under_different_keys_are_refused() -> None:
    with pytest.raises(PreconditionFailed, match="different fingerprint keys"):
        plan_changes(holding("blue", {}), replace(holding("green", {}), key_id="other"))


def test_a_plan_survives_json() -> None:
    plan = plan_changes(holding("blue", {"message_ttl_in_seconds": 5}, topics=topic(3)), snapshot("green"))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_of_another_schema_version_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="schema version 99"):
        Plan.from_json({"schema_version": 99})


def test_the_id_of_a_change_follows_its_values() -> None:
    plans = [plan_changes(holding("blue", {"max_producers_per_topic": n}), holding("green", {})) for n in (1, 1, 2)]
    ids = [plan.changes[0].id for plan in plans]
    assert (ids[0] == ids[1], ids[0] == ids[2]) == (True, False)


def test_the_text_says_first_what_can_be_lost() -> None:
    plan = plan_changes(holding("blue", {"message_ttl_in_seconds": 5}), holding("green", {}))
    assert plan_text(plan).splitlines()[0] == (
        f"Plan {plan.id} for green: 1 change, 0 destructive, 1 irreversible. 1 call, about 1 s."
    )
    assert f"IRREVERSIBLE, id {plan.changes[0].id}" in plan_text(plan)


def test_one_long_name_does_not_widen_the_lines_of_the_others() -> None:
    names = [f"acme/n{number}" for number in range(20)]
    policies = {"message_ttl_in_seconds": 5}
    ours, theirs = (
        snapshot(
            side,
            tenants=(TenantState("acme", ("owner",), (side,)),),
            namespaces=tuple(
                NamespaceState(name, {"replication_clusters": [side], **(policies if side == "blue" else {})})
                for name in [*names, f"acme/{'long' * 50}"]
            ),
        )
        for side in ("blue", "green")
    )
    lines = [line for line in plan_text(plan_changes(ours, theirs)).splitlines() if "message_ttl_in_seconds" in line]
    assert len(lines) == 21
    assert max(line.index("message_ttl_in_seconds") for line in lines if "long" not in line) < 40
    assert len({line.index("message_ttl_in_seconds") for line in lines if "long" not in line}) == 1


def test_the_estimate_of_a_plan_is_a_duration_that_people_use() -> None:
    plan = plan_changes(holding("blue", {"message_ttl_in_seconds": 5}), holding("green", {}))
    (change,) = plan.changes
    many = replace(plan, changes=(replace(change, calls=change.calls * 10_000_000),))
    assert many.seconds > 86_400
    assert " s." not in headline(many)
    assert " days " in headline(many)


def test_a_new_topic_is_one_line_with_what_is_made_in_it() -> None:
    source = holding(
        "blue",
        {},
        topics=topic(12),
        schemas=schemas("a"),
        subscriptions=tuple(SubscriptionState(EVENTS, f"{EVENTS}-partition-{n}", "s", "0:0", False) for n in range(12)),
    )
    text = plan_markdown(plan_changes(source, holding("green", {})))
    assert "12 partitions, 1 schema version, 1 subscription" in text


def with_defaults(snapshot: Snapshot, **configuration: str) -> Snapshot:
    return replace(snapshot, brokers=(BrokerState("localhost:8080", "4.2.4", configuration),))


def topic_policies(**policies: Any) -> tuple[TopicPolicyState, ...]:
    return (TopicPolicyState(EVENTS, "local", policies, 0),)


KEEP_ALL = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
KEEP_SOME = {"retentionTimeInMinutes": 9, "retentionSizeInMB": 9}


def test_a_policy_of_a_topic_is_judged_by_its_namespace_without_it() -> None:
    """Setting a retention where the namespace keeps everything deletes messages."""
    source = holding("blue", {"retention_policies": KEEP_ALL}, topics=topic(0))
    source = replace(source, topic_policies=topic_policies(retentionPolicies=KEEP_SOME))
    target = holding("green", {"retention_policies": KEEP_ALL}, topics=topic(0))
    (change,) = plan_changes(source, target).needing_permission()
    assert (change.field, "retention is shorter" in change.reason) == ("local/retentionPolicies", True)


def test_a_policy_that_is_unset_on_a_topic_falls_to_the_namespace() -> None:
    source = holding("blue", {"message_ttl_in_seconds": 5}, topics=topic(0))
    target = holding("green", {"message_ttl_in_seconds": 5}, topics=topic(0))
    target = replace(target, topic_policies=topic_policies(messageTTLInSeconds=3600))
    (change,) = plan_changes(source, target).needing_permission()
    assert (change.action, "expire sooner" in change.reason) == (Action.UNSET, True)


@pytest.mark.parametrize(
    ("configuration", "policies"),
    [
        ({"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}, {"retention_policies": KEEP_SOME}),
        ({"brokerDeleteInactiveTopicsEnabled": "false"}, {"inactive_topic_policies": {"deleteWhileInactive": True}}),
    ],
)
def test_a_policy_is_judged_by_what_the_brokers_do_without_it(configuration: Any, policies: Any) -> None:
    target = with_defaults(holding("green", {}), **configuration)
    assert len(plan_changes(holding("blue", policies), target).needing_permission()) == 1


def test_a_policy_that_is_unset_falls_to_the_default_of_every_broker() -> None:
    target = with_defaults(holding("green", {"message_ttl_in_seconds": 3600}), ttlDurationDefaultInSeconds="5")
    other = replace(target, brokers=(BrokerState("localhost:8081", "4.2.4", {}), *target.brokers))
    assert len(plan_changes(holding("blue", {}), other).needing_permission()) == 1


def test_a_plan_falls_into_what_is_shared_and_batches_of_namespaces() -> None:
    source = holding("blue", {})
    source = replace(source, namespaces=(*source.namespaces, NamespaceState("acme/audit", LISTS)))
    plan = plan_changes(source, snapshot("green"))
    assert plan.namespaces() == ("acme/audit", "acme/orders")
    parts = (plan.shared(), plan.batch({"acme/audit"}), plan.batch({"acme/orders"}))
    assert [[change.name for change in part.changes] for part in parts] == [["acme"], ["acme/audit"], ["acme/orders"]]


PEER = ClusterDataState("third", {"serviceUrl": "http://third:8080"})
BOTH = {"replication_clusters": ["blue", "third"]}


def test_a_peer_that_a_list_names_is_made_known_before_the_list() -> None:
    source = replace(holding("blue", BOTH), clusters=(PEER, ClusterDataState("other", {})))
    plan = plan_changes(source, snapshot("green"))
    assert [change.name for change in plan.changes] == ["third", "acme", "acme/orders"]
    assert plan.changes[2].after["replication_clusters"] == ["green", "third"]


def test_a_peer_whose_data_holds_secrets_is_left_alone_and_in_no_list() -> None:
    data = {**PEER.data, "authenticationParameters": "redacted:abc"}
    source = replace(holding("blue", BOTH), clusters=(ClusterDataState("third", data),))
    plan = plan_changes(source, snapshot("green"))
    assert plan.changes[1].after["replication_clusters"] == ["green"]
    assert "holds secrets" in plan.left_alone[-1].reason


def test_only_what_the_selected_namespaces_need_is_carried_over() -> None:
    groups = (ResourceGroupState("used", {"publishRateInMsgs": 5}), ResourceGroupState("other", {}))
    isolation = {"ours": {"primary": ["b"], "namespaces": ["acme/.*"]}, "theirs": {"namespaces": ["other/.*"]}}
    own = ClusterDataState("blue", {}, {"domain": {"brokers": ["x:1"]}}, isolation)
    source = replace(holding("blue", {"resource_group_name": "used"}), resource_groups=groups, clusters=(own,))
    planned = plan_changes(replace(source, selection=("acme",)), holding("green", {}))
    named = {entry.name for entry in (*planned.changes, *planned.left_alone)}
    assert named == {"used", "acme/orders", "ours"}


@pytest.mark.parametrize(
    ("primary", "reason"),
    [
        ("old-.*", "match none of green"),
        ("b-.*", "would leave 0 of 3 brokers"),
        ("b-[12]", "would leave 1 of 3 brokers"),
    ],
)
def test_an_isolation_policy_that_stops_namespaces_is_left_alone(primary: str, reason: str) -> None:
    policy = {"primary": [primary], "namespaces": ["acme/.*"]}
    source = replace(holding("blue", {}), clusters=(ClusterDataState("blue", {}, {}, {"iso": policy}),))
    brokers = tuple(BrokerState(f"b-{number}:8080", "4.2.4", {}) for number in (1, 2, 3))
    plan = plan_changes(source, replace(holding("green", {}), brokers=brokers))
    assert plan.empty
    assert reason in plan.left_alone[0].reason


def test_a_new_subscription_starts_before_the_first_message() -> None:
    rows = (SubscriptionState(EVENTS, EVENTS, "s", "0:0", False),)
    source = holding("blue", {}, topics=topic(0), subscriptions=rows)
    plan = plan_changes(source, holding("green", {}, topics=topic(0)))
    assert [call.body for call in plan.changes[0].calls] == ["earliest"]


# Values that a broker takes for some fields of each kind.
policies_documents = st.fixed_dictionaries(
    {},
    optional={
        "message_ttl_in_seconds": st.integers(1, 9),
        "retention_policies": st.fixed_dictionaries(
            {"retentionTimeInMinutes": st.integers(-1, 3), "retentionSizeInMB": st.integers(-1, 3)}
        ),
        "backlog_quota_map": st.dictionaries(
            st.sampled_from(["destination_storage", "message_age"]),
            st.fixed_dictionaries({"limitSize": st.integers(1, 3), "policy": st.just("producer_exception")}),
        ),
        "properties": st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
        "subscription_types_enabled": st.lists(st.sampled_from(["Shared", "Failover"]), unique=True),
        "schema_compatibility_strategy": st.sampled_from(["UNDEFINED", "FULL", "ALWAYS_COMPATIBLE"]),
        "topicDispatchRate": st.dictionaries(
            st.sampled_from(["blue", "green", "third"]),
            st.fixed_dictionaries({"dispatchThrottlingRateInMsg": st.integers(1, 3)}),
        ),
        "auth_policies": st.fixed_dictionaries(
            {
                "namespace_auth": st.dictionaries(
                    st.sampled_from(["a", "b"]),
                    st.lists(st.sampled_from(["produce", "consume"]), unique=True, min_size=1),
                )
            }
        ),
        "allowed_clusters": st.just(["blue", "green"]),
        "dispatcherPauseOnAckStatePersistentEnabled": st.booleans(),
    },
)


def written(change: Change, document: dict[str, Any]) -> dict[str, Any]:
    """The document after the change, as a broker would keep it."""
    if BY_FIELD[change.field].kind is Kind.CLUSTER_MAP:
        return {**document, change.field: {**document.get(change.field, {}), "green": change.after}}
    return {**document, change.field: change.after}


@given(ours=policies_documents, theirs=policies_documents)
def test_applying_a_plan_leaves_nothing_to_plan(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    source, target = holding("blue", ours), holding("green", theirs)
    document = dict(target.namespaces[0].policies)
    for change in plan_changes(source, target).changes:
        document = written(change, document)
    assert plan_changes(source, replace(target, namespaces=(NamespaceState("acme/orders", document),))).empty


@given(ours=policies_documents, theirs=policies_documents)
def test_a_policy_is_changed_at_most_once(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    fields = [field for _, field, _ in steps(plan_changes(holding("blue", ours), holding("green", theirs)))]
    assert len(fields) == len(set(fields))


PARTITIONED = {"topicType": "partitioned", "defaultNumPartitions": 3}


@pytest.mark.parametrize(
    ("partitions", "new_topics", "created"),
    [
        (0, PARTITIONED, ["/namespaces/acme/new", f"/{POLICIES}", "/namespaces/acme/new/autoTopicCreation"]),
        (2, PARTITIONED, ["/namespaces/acme/new", f"/{POLICIES}/partitions"]),
        (3, PARTITIONED, ["/namespaces/acme/new"]),
        (3, {"topicType": "non-partitioned"}, ["/namespaces/acme/new", f"/{POLICIES}/partitions"]),
        (0, None, ["/namespaces/acme/new"]),
        (None, PARTITIONED, ["/namespaces/acme/new"]),
    ],
)
def test_the_topic_of_policies_is_created_before_a_broker_shapes_it(
    partitions: int | None, new_topics: dict[str, Any] | None, created: list[str]
) -> None:
    name = "persistent://acme/new/__change_events"
    rows = () if partitions is None else (InventoryState(SYSTEM_TOPIC, "acme/new", name, {"partitions": partitions}),)
    document = {"replication_clusters": ["green"], **({"autoTopicCreationOverride": new_topics} if new_topics else {})}
    calls = namespace_creation_calls(
        NamespaceName("acme", "new"), document, snapshot("blue", inventory=rows), snapshot("green")
    )
    assert [call.path for call in calls] == created
