"""What counts for a topic, and where equal documents behave differently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.policies.effective import effective_value
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD
from pulsar_fleet.preflight.checks.policies import effective_differences
from pulsar_fleet.snapshot.model import BrokerState, NamespaceState, Snapshot, TopicPolicyState

TTL = TOPIC_BY_FIELD["messageTTLInSeconds"]
UNLIMITED = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1}
LIMITED = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1}


def ttl(*values: int | None) -> Any:
    local, shared, namespace, broker = values
    return effective_value(
        TTL,
        local={"messageTTLInSeconds": local},
        shared={"messageTTLInSeconds": shared},
        namespace={"message_ttl_in_seconds": namespace},
        configuration={} if broker is None else {"ttlDurationDefaultInSeconds": str(broker)},
    )


def of_topic(field: str, **layers: dict[str, Any]) -> Any:
    documents: dict[str, dict[str, Any]] = {"local": {}, "shared": {}, "namespace": {}, "configuration": {}}
    return effective_value(TOPIC_BY_FIELD[field], **{**documents, **layers})


def snapshot(cluster: str, policies: dict[str, Any], *configurations: dict[str, str]) -> Snapshot:
    document = {"replication_clusters": [cluster], **policies}
    return Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="k",
        namespaces=(NamespaceState("acme/orders", document),),
        brokers=tuple(
            BrokerState(f"b{at}:80", "4.2.4", configuration) for at, configuration in enumerate(configurations)
        ),
    )


def told(source: Snapshot, target: Snapshot) -> list[tuple[str, Any, Any]]:
    return [
        (difference.field, difference.source, difference.target) for difference in effective_differences(source, target)
    ]


@given(st.lists(st.none() | st.integers(min_value=0), min_size=4, max_size=4))
def test_the_first_layer_that_says_something_counts(values: list[int | None]) -> None:
    assert ttl(*values) == next((value for value in values if value is not None), None)


def test_a_rate_without_limits_lets_the_next_layer_speak() -> None:
    rate = of_topic("dispatchRate", local={"dispatchRate": UNLIMITED}, namespace={"topicDispatchRate": LIMITED})
    assert rate == LIMITED


def test_each_type_of_backlog_quota_is_asked_for_by_itself() -> None:
    size, age = {"limitSize": 1, "policy": "producer_exception"}, {"limitTime": 2, "policy": "producer_exception"}
    quotas = of_topic(
        "backLogQuotaMap",
        local={"backLogQuotaMap": {"message_age": age}},
        namespace={"backlog_quota_map": {"destination_storage": size}},
    )
    assert quotas == {"destination_storage": size, "message_age": age}


def test_a_policy_with_parts_takes_its_parts_from_the_broker() -> None:
    broker = {"defaultRetentionTimeInMinutes": "5", "defaultRetentionSizeInMB": "-1"}
    retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
    assert of_topic("retentionPolicies", configuration=broker) == retention


def test_a_default_quota_in_gigabytes_wins_over_the_one_in_bytes() -> None:
    broker = {"backlogQuotaDefaultLimitGB": "2", "backlogQuotaDefaultLimitBytes": "7"}
    limit = {"limitSize": 2 << 30}
    value = {"destination_storage": limit, "message_age": limit}
    assert of_topic("backLogQuotaMap", configuration=broker) == value


def test_a_policy_that_neither_sets_is_named_when_the_defaults_differ() -> None:
    source = snapshot("blue", {}, {"ttlDurationDefaultInSeconds": "0", "maxProducersPerTopic": "1"})
    target = snapshot("green", {}, {"ttlDurationDefaultInSeconds": "60", "maxProducersPerTopic": "1"})
    key = "ttlDurationDefaultInSeconds"
    assert told(source, target) == [("message_ttl_in_seconds", {key: (0,)}, {key: (60,)})]


def test_a_policy_that_both_set_is_not_told() -> None:
    policies, key = {"message_ttl_in_seconds": 5}, "ttlDurationDefaultInSeconds"
    assert told(snapshot("blue", policies, {key: "0"}), snapshot("green", policies, {key: "60"})) == []


def test_one_broker_of_a_cluster_that_differs_is_told() -> None:
    key = "maxMessageSize"
    source = snapshot("blue", {}, {key: "5"}, {key: "5"})
    assert told(source, snapshot("green", {}, {key: "5"}, {key: "9"})) == [(key, {key: (5,)}, {key: (5, 9)})]


def test_a_list_in_another_order_is_the_same() -> None:
    key = "subscriptionTypesEnabled"
    assert (
        told(snapshot("blue", {}, {key: "[Shared, Failover]"}), snapshot("green", {}, {key: "[Failover, Shared]"}))
        == []
    )


def test_a_setting_that_one_side_does_not_show_is_not_compared() -> None:
    assert told(snapshot("blue", {}, {"maxMessageSize": "5"}), snapshot("green", {}, {})) == []
    assert told(snapshot("blue", {}, {"maxMessageSize": "5"}), snapshot("green", {})) == []


def test_a_quota_of_one_type_leaves_the_other_to_the_brokers() -> None:
    quota = {"backlog_quota_map": {"message_age": {"limitTime": 5, "policy": "producer_exception"}}}
    key = "backlogQuotaDefaultLimitBytes"
    sides = snapshot("blue", quota, {key: "1"}), snapshot("green", quota, {key: "2"})
    assert told(*sides) == [("backlog_quota_map", {key: (1,)}, {key: (2,)})]


def test_an_equal_policy_that_one_cluster_switches_off_is_told() -> None:
    filters, key = {"entryFilters": {"entryFilterNames": "a"}}, "allowOverrideEntryFilters"
    sides = snapshot("blue", filters, {key: "true"}), snapshot("green", filters, {key: "false"})
    assert told(*sides) == [("entryFilters", {key: (True,)}, {key: (False,)})]


def test_topic_policies_of_a_cluster_that_ignores_them_are_told() -> None:
    key = "topicLevelPoliciesEnabled"
    source, target = (snapshot(name, {}, {key: value}) for name, value in (("blue", "true"), ("green", "false")))
    assert told(source, target) == []
    policies = (TopicPolicyState("persistent://acme/orders/events", "local", {"maxProducerPerTopic": 3}, 1),)
    assert told(replace(source, topic_policies=policies), target) == [
        ("topic policies", {key: (True,)}, {key: (False,)})
    ]
