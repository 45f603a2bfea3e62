from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.planning.diff import diff
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.snapshot.model import (
    NamespaceState,
    SchemaState,
    Snapshot,
    SubscriptionState,
    TenantState,
    TopicPolicyState,
    TopicState,
)

EVENTS = "persistent://acme/orders/events"
EMPTY = Snapshot(cluster="green", began="", ended="", key_id="k")
FULL = replace(
    EMPTY,
    tenants=(TenantState("acme", ("owner",), ("green",)),),
    namespaces=(NamespaceState("acme/orders", {"replication_clusters": ["green"], "message_ttl_in_seconds": 5}),),
    topics=(TopicState(EVENTS, 2, {"team": "billing"}),),
    schemas=(SchemaState(EVENTS, 0, "STRING", "", {}, 1),),
    subscriptions=(
        SubscriptionState(EVENTS, f"{EVENTS}-partition-0", "s", "1:2", False),
        SubscriptionState(EVENTS, f"{EVENTS}-partition-1", "s", "1:3", False),
    ),
    topic_policies=(TopicPolicyState(EVENTS, "local", {"maxProducerPerTopic": 3, "isGlobal": False}, 1),),
)


def found(source: Snapshot, target: Snapshot) -> list[tuple[Resource, str, str, Side]]:
    return [
        (difference.resource, difference.name, difference.field, difference.side) for difference in diff(source, target)
    ]


def test_equal_clusters_do_not_differ() -> None:
    assert diff(FULL, FULL) == ()


def test_everything_is_missing_on_an_empty_target_in_the_order_of_creation() -> None:
    assert found(FULL, EMPTY) == [
        (Resource.TENANT, "acme", "", Side.MISSING),
        (Resource.NAMESPACE, "acme/orders", "", Side.MISSING),
        (Resource.TOPIC, EVENTS, "", Side.MISSING),
        (Resource.SCHEMA, EVENTS, "", Side.MISSING),
        (Resource.TOPIC_POLICY, EVENTS, "local/maxProducerPerTopic", Side.MISSING),
        (Resource.SUBSCRIPTION, EVENTS, "s", Side.MISSING),
    ]


def test_a_namespace_only_on_the_target_is_told_once_without_its_topics() -> None:
    assert found(EMPTY, replace(FULL, tenants=())) == [(Resource.NAMESPACE, "acme/orders", "", Side.EXTRA)]


def test_one_policy_that_differs_is_one_difference() -> None:
    other = replace(FULL, namespaces=(NamespaceState("acme/orders", {"replication_clusters": ["green"]}),))
    assert diff(FULL, other) == (
        Difference(Resource.POLICY, "acme/orders", "message_ttl_in_seconds", Side.MISSING, 5, None),
    )


def test_a_subscription_that_a_partition_lacks_is_missing_there() -> None:
    partly = replace(FULL, subscriptions=FULL.subscriptions[:1])
    assert found(FULL, partly) == [(Resource.SUBSCRIPTION, f"{EVENTS}-partition-1", "s", Side.MISSING)]
    assert found(partly, FULL) == [(Resource.SUBSCRIPTION, f"{EVENTS}-partition-1", "s", Side.EXTRA)]
    assert found(partly, partly) == []


def test_a_subscription_of_one_partition_is_a_difference_of_that_partition() -> None:
    source, target = (replace(FULL, subscriptions=rows) for rows in (FULL.subscriptions[1:], ()))
    assert found(source, target) == [(Resource.SUBSCRIPTION, f"{EVENTS}-partition-1", "s", Side.MISSING)]


def test_partitions_whose_values_differ_are_compared_one_by_one() -> None:
    first, second = FULL.subscriptions
    flagged = replace(FULL, subscriptions=(first, replace(second, replicated=True, properties={"a": "b"})))
    assert diff(flagged, FULL) == (
        Difference(
            Resource.SUBSCRIPTION,
            f"{EVENTS}-partition-1",
            "s",
            Side.DIFFERENT,
            {"replicated": True, "properties": {"a": "b"}},
            {"replicated": False, "properties": {}},
        ),
    )


def test_a_change_of_all_partitions_is_one_difference_of_the_topic() -> None:
    flagged = replace(FULL, subscriptions=tuple(replace(row, replicated=True) for row in FULL.subscriptions))
    assert found(flagged, FULL) == [(Resource.SUBSCRIPTION, EVENTS, "s", Side.DIFFERENT)]


def test_partitions_of_one_side_only_are_no_difference_in_subscriptions() -> None:
    more = SubscriptionState(EVENTS, f"{EVENTS}-partition-2", "s", "1:3", False)
    grown = replace(FULL, topics=(TopicState(EVENTS, 3, {}),), subscriptions=(*FULL.subscriptions, more))
    small = replace(FULL, topics=(TopicState(EVENTS, 2, {}),))
    assert found(small, grown) == [(Resource.TOPIC, EVENTS, "partitions", Side.DIFFERENT)]
    assert found(grown, small)[1:] == [(Resource.SUBSCRIPTION, f"{EVENTS}-partition-2", "s", Side.MISSING)]


def test_properties_of_one_partition_are_a_difference_of_that_partition() -> None:
    own = {f"{EVENTS}-partition-1": {"shard": "east"}}
    source = replace(FULL, topics=(replace(FULL.topics[0], partition_properties=own),))
    assert diff(source, FULL) == (
        Difference(Resource.TOPIC, f"{EVENTS}-partition-1", "properties", Side.DIFFERENT, {"shard": "east"}, {}),
    )
    assert found(FULL, source) == [(Resource.TOPIC, f"{EVENTS}-partition-1", "properties", Side.DIFFERENT)]


def test_where_a_cursor_stands_is_not_compared() -> None:
    moved = tuple(replace(subscription, mark_delete="9:9") for subscription in FULL.subscriptions)
    assert diff(FULL, replace(FULL, subscriptions=moved)) == ()


def test_schema_version_numbers_and_times_are_each_clusters_own() -> None:
    other = replace(FULL, schemas=(SchemaState(EVENTS, 7, "STRING", "", {}, 99),))
    assert diff(FULL, other) == ()


def test_true_is_not_one() -> None:
    assert not same(True, 1)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert same(value, value)


@given(st.dictionaries(st.sampled_from(["futureA", "futureB", "message_ttl_in_seconds"]), st.integers(min_value=1)))
def test_a_snapshot_with_any_fields_does_not_differ_from_itself(policies: dict[str, Any]) -> None:
    snapshot = replace(EMPTY, namespaces=(NamespaceState("acme/orders", policies),))
    assert diff(snapshot, snapshot) == ()
