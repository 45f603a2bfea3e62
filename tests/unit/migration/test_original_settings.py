"""What a migration remembers of blue, and what it sets instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable, translate
from pulsar_fleet.cluster.runs.overrides import (
    PROPERTY,
    QUIESCED_RATE,
    NamespaceOverrides,
    byte_throttle,
    never_deleting,
    overrides_in,
    without_overrides,
)
from pulsar_fleet.migration.prepare.overrides import OriginalSettings, with_original_tenants
from pulsar_fleet.snapshot.model import Snapshot, TenantState

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
        green="green",
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


THROTTLES = st.just(QUIESCED_RATE) | st.integers(1, 1_000_000).map(byte_throttle)


@given(RATES, POLICIES, RATES, POLICIES, THROTTLES)
def test_what_a_run_overrides_is_not_what_another_cluster_is_given(
    rate: JsonObject | None,
    inactive: JsonObject | None,
    own_rate: JsonObject | None,
    own_inactive: JsonObject | None,
    throttle: JsonObject,
) -> None:
    record = recorded(rate, inactive, own_rate, own_inactive)
    document = on_blue(throttle, never_deleting(inactive), record=record)
    original = without_overrides(document)
    assert original["publishMaxMessageRate"] == ({"blue": rate} if rate else {})
    assert original["inactive_topic_policies"] == inactive
    assert original["replication_clusters"] == ["blue"]
    assert without_overrides(original) == original
    expected = on_blue(rate, inactive, clusters=["blue"])
    assert comparable(original, "blue") == comparable(expected, "blue")
    assert PROPERTY not in translate(original, "blue", "green").document["properties"]
    local: JsonObject = {"publishRate": throttle, "inactiveTopicPolicies": never_deleting(own_inactive), "max": 7}
    assert record.original_topic_policies(str(EVENTS), local) == {
        "publishRate": own_rate,
        "inactiveTopicPolicies": own_inactive,
        "max": 7,
    }
    assert record.original_topic_policies(str(TopicName(ORDERS, "other")), local) == local


@given(POLICIES)
def test_what_somebody_sets_after_the_freeze_counts(set_since: JsonObject | None) -> None:
    record = recorded(None, None, None, None)
    document = on_blue(None, set_since, record=record)
    assert without_overrides(document)["inactive_topic_policies"] == set_since
    assert record.original_topic_policies(str(EVENTS), {"inactiveTopicPolicies": set_since}) == {
        "inactiveTopicPolicies": set_since
    }


def test_a_third_cluster_that_was_listed_before_stays_when_green_leaves() -> None:
    record = replace(recorded(None, None, None, None), replication=["blue", "far"])
    document = on_blue(None, None, record=record, clusters=["blue", "far", "green"])
    assert without_overrides(document)["replication_clusters"] == ["blue", "far"]
    since = on_blue(None, None, record=record, clusters=["blue", "far", "green", "new"])
    assert without_overrides(since)["replication_clusters"] == since["replication_clusters"]


@pytest.mark.parametrize(
    ("current", "original"),
    [(["far", "green", "blue"], ["blue", "far"]), (["blue", "green"], ["blue", "green"]), (["blue"], ["blue"])],
)
def test_a_list_of_a_topic_is_read_as_it_was_unless_it_was_set_since(current: list[str], original: list[str]) -> None:
    record = recorded(None, None, None, None)
    assert record.original_topic_policies(str(EVENTS), {"replicationClusters": current}) == {
        "replicationClusters": original
    }


def test_a_tenant_that_allows_green_for_the_run_only_is_read_without_it() -> None:
    settings = OriginalSettings(green="green", publish_rates={}, replication={}, allowed={"acme": ["blue"]})
    snapshot = Snapshot(
        cluster="blue", began="", ended="", key_id="", tenants=(TenantState("acme", (), ("blue", "green")),)
    )
    assert with_original_tenants(snapshot, settings).tenants == (TenantState("acme", (), ("blue",)),)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 99}'])
def test_an_unreadable_record_of_the_original_settings_is_refused(text: str) -> None:
    with pytest.raises(PreconditionFailed, match=f"property {PROPERTY} cannot be read"):
        overrides_in({"properties": {PROPERTY: text}})


def recorded(
    rate: JsonObject | None, inactive: JsonObject | None, own_rate: JsonObject | None, own_inactive: JsonObject | None
) -> NamespaceOverrides:
    settings = OriginalSettings(
        green="green",
        publish_rates={str(ORDERS): rate},
        replication={str(ORDERS): ["blue"]},
        allowed={"acme": ["blue"]},
        inactive={str(ORDERS): inactive},
        topic_rates={str(EVENTS): own_rate},
        topic_inactive={str(EVENTS): own_inactive},
        topic_replication={str(EVENTS): ["blue", "far"]},
    )
    record = settings.record(ORDERS, run="moved", since="2026-11-23T00:00:00+00:00", cluster="blue")
    assert OriginalSettings.recorded({str(ORDERS): record}) == settings
    return record


def on_blue(
    rate: JsonObject | None,
    inactive: JsonObject | None,
    *,
    record: NamespaceOverrides | None = None,
    clusters: Sequence[str] = ("blue", "green"),
) -> JsonObject:
    """The policies document of a namespace."""
    properties = {"owner": "ada"}
    if record:
        properties[PROPERTY] = json.dumps(record.to_json())
    return {
        "publishMaxMessageRate": {"blue": rate} if rate else {},
        "inactive_topic_policies": inactive,
        "replication_clusters": [*clusters],
        "properties": properties,
    }
