"""What a migration remembers of blue, and what it sets instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.prepare.original_settings import (
    QUIESCED_RATE,
    OriginalSettings,
    never_deleting,
    without_overrides,
)
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState

ORDERS, AUDIT = NamespaceName("acme", "orders"), NamespaceName("acme", "audit")
EVENTS = TopicName(ORDERS, "events")
LIMITS = st.integers(-1, 10**9)
RATES = st.none() | st.fixed_dictionaries({"publishThrottlingRateInMsg": LIMITS, "publishThrottlingRateInByte": LIMITS})


@given(st.none() | st.fixed_dictionaries({"deleteWhileInactive": st.booleans(), "maxInactiveDurationSeconds": LIMITS}))
def test_nothing_is_deleted_whatever_the_policies_were(policies: JsonObject | None) -> None:
    original = never_deleting(policies)
    assert original["deleteWhileInactive"] is False
    assert {key: value for key, value in original.items() if key != "deleteWhileInactive"} == {
        key: value for key, value in (policies or original).items() if key != "deleteWhileInactive"
    }


@given(RATES, RATES)
def test_what_is_remembered_survives_the_process_that_read_it(
    namespace: JsonObject | None, own: JsonObject | None
) -> None:
    before = OriginalSettings(
        dynamic={"loadBalancerSheddingEnabled": None, "replicationStartAt": "latest"},
        effective={"b:1": {"loadBalancerSheddingEnabled": "true"}},
        publish_rates={str(ORDERS): namespace, str(AUDIT): None},
        replication={str(ORDERS): ["blue"], str(AUDIT): []},
        inactive={str(ORDERS): None, str(AUDIT): None},
        topic_rates={str(EVENTS): own},
    )
    read = OriginalSettings.from_json(json.loads(json.dumps(before.to_json())))
    assert read == before
    assert (read.own_rates(ORDERS), read.own_rates(AUDIT)) == ({EVENTS: own}, {})
    assert read.namespaces == (ORDERS, AUDIT)


POLICIES = st.none() | st.fixed_dictionaries(
    {"deleteWhileInactive": st.just(True), "maxInactiveDurationSeconds": LIMITS}
)


@given(RATES, POLICIES, RATES, POLICIES)
def test_what_a_run_overrides_on_blue_is_not_what_green_is_given(
    rate: JsonObject | None, inactive: JsonObject | None, own_rate: JsonObject | None, own_inactive: JsonObject | None
) -> None:
    before = remembered(rate, inactive, own_rate, own_inactive)
    original = held_by_blue(
        QUIESCED_RATE,
        never_deleting(inactive),
        {"publishRate": QUIESCED_RATE, "inactiveTopicPolicies": never_deleting(own_inactive)},
    )
    restored = without_overrides(original, before, "green")
    assert restored.tenants == (TenantState("acme", (), ("blue",)),)
    policies, other = (state.policies for state in restored.namespaces)
    assert policies["publishMaxMessageRate"] == ({"blue": rate} if rate else {})
    assert policies["inactive_topic_policies"] == inactive
    assert policies["replication_clusters"] == ["blue"]
    assert other == original.namespaces[1].policies
    local, shared = (state.policies for state in restored.topic_policies)
    assert local == {"publishRate": own_rate, "inactiveTopicPolicies": own_inactive, "maxConsumers": 7}
    assert shared == original.topic_policies[1].policies


@given(POLICIES)
def test_what_somebody_sets_after_the_freeze_counts(set_since: JsonObject | None) -> None:
    before = remembered(None, None, None, None)
    original = held_by_blue(None, set_since, {"inactiveTopicPolicies": set_since})
    restored = without_overrides(original, before, "green")
    assert restored.namespaces[0].policies["inactive_topic_policies"] == set_since
    assert restored.topic_policies[0].policies["inactiveTopicPolicies"] == set_since


def test_a_third_cluster_that_was_there_before_stays_where_only_green_was_added() -> None:
    before = replace(remembered(None, None, None, None), replication={str(ORDERS): ["blue", "far"]})
    original = held_by_blue(None, None, {}, clusters=["blue", "far", "green"])
    assert without_overrides(original, before, "green").namespaces[0].policies["replication_clusters"] == [
        "blue",
        "far",
    ]
    since = held_by_blue(None, None, {}, clusters=["blue", "far", "green", "new"])
    assert without_overrides(since, before, "green").namespaces == since.namespaces


def remembered(
    rate: JsonObject | None, inactive: JsonObject | None, own_rate: JsonObject | None, own_inactive: JsonObject | None
) -> OriginalSettings:
    return OriginalSettings(
        dynamic={},
        publish_rates={str(ORDERS): rate},
        replication={str(ORDERS): ["blue"]},
        allowed={"acme": ["blue"]},
        inactive={str(ORDERS): inactive},
        topic_rates={str(EVENTS): own_rate},
        topic_inactive={str(EVENTS): own_inactive},
    )


def held_by_blue(
    rate: JsonObject | None, inactive: JsonObject | None, own: JsonObject, clusters: Sequence[str] = ("blue", "green")
) -> Snapshot:
    """Two namespaces of which one moves, and a topic with policies of its own and global ones."""
    policies = {
        "publishMaxMessageRate": {"blue": rate} if rate else {},
        "inactive_topic_policies": inactive,
        "replication_clusters": [*clusters],
    }
    return Snapshot(
        cluster="blue",
        began="",
        ended="",
        key_id="",
        tenants=(TenantState("acme", (), ("blue", "green")),),
        namespaces=(NamespaceState(str(ORDERS), policies), NamespaceState(str(AUDIT), policies)),
        topic_policies=(
            TopicPolicyState(str(EVENTS), "local", {**own, "maxConsumers": 7}, 0),
            TopicPolicyState(str(EVENTS), "global", own, 0),
        ),
    )
