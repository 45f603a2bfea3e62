from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards import (
    DISCARDS,
    ValueChange,
    guard_call,
    guard_cluster_lists,
    risks_of_calls,
    risks_of_values,
)
from pulsar_fleet.planning.plan import Hazard, worst

NAMESPACE = "/namespaces/acme/orders"
TOPIC = "/persistent/acme/orders/events"
APP = {"namespace_auth": {"app": ["consume"]}}
LISTS = [
    lambda names: with_body("POST", f"{NAMESPACE}/replication", names),
    lambda names: with_body("POST", f"{NAMESPACE}/allowedClusters", names),
    lambda names: with_body("POST", f"{TOPIC}/replication", names),
    lambda names: with_body("PUT", NAMESPACE, {"replication_clusters": names}),
    lambda names: with_body("PUT", NAMESPACE, {"replication_clusters": ["green"], "allowed_clusters": ["x", *names]}),
    lambda names: with_body("PUT", "/tenants/acme", {"allowedClusters": names}),
    lambda names: with_body("POST", "/tenants/acme", {"allowedClusters": names}),
]


@pytest.mark.parametrize("call", LISTS)
@given(names=st.lists(st.sampled_from(["blue", "third", "Green", "green2"])))
def test_a_list_without_the_serving_cluster_is_refused(call: Any, names: list[str]) -> None:
    with pytest.raises(PreconditionFailed, match="without 'green' itself"):
        guard_cluster_lists(call(names), "green")


@pytest.mark.parametrize("call", LISTS)
@given(names=st.lists(st.sampled_from(["blue", "third"])))
def test_a_list_with_the_serving_cluster_passes(call: Any, names: list[str]) -> None:
    guard_cluster_lists(call([*names, "green"]), "green")


def test_a_global_list_of_a_topic_is_refused_whatever_it_names() -> None:
    with pytest.raises(PreconditionFailed, match="every cluster that is not in it"):
        guard_cluster_lists(with_body("POST", f"{TOPIC}/replication", ["green", "blue"], isGlobal="true"), "green")


@pytest.mark.parametrize(
    ("call", "hazard"),
    [
        (bare("DELETE", NAMESPACE), Hazard.DESTRUCTIVE),
        (bare("DELETE", f"{NAMESPACE}/0x00_0xff"), Hazard.DESTRUCTIVE),
        (bare("DELETE", TOPIC), Hazard.DESTRUCTIVE),
        (bare("DELETE", f"{TOPIC}/partitions"), Hazard.DESTRUCTIVE),
        (bare("DELETE", f"{TOPIC}/subscription/s"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{TOPIC}/subscription/s/skip_all"), Hazard.DESTRUCTIVE),
        (bare("DELETE", "/schemas/acme/orders/events/schema"), Hazard.DESTRUCTIVE),
        (bare("DELETE", f"{NAMESPACE}/retention"), Hazard.NONE),
        (bare("DELETE", f"{TOPIC}/retention"), Hazard.NONE),
        (with_body("POST", f"{TOPIC}/partitions", 8), Hazard.IRREVERSIBLE),
        (with_body("PUT", f"{TOPIC}/partitions", 8), Hazard.NONE),
        (bare("DELETE", "/clusters/blue"), Hazard.DESTRUCTIVE),
        (bare("DELETE", f"{TOPIC}/policies"), Hazard.IRREVERSIBLE),
        (bare("POST", f"{TOPIC}/subscription/s/resetcursor/5"), Hazard.IRREVERSIBLE),
        (bare("POST", "/clusters/green/migrate", migrated="true"), Hazard.DESTRUCTIVE),
        (bare("PUT", f"{TOPIC}/unload"), Hazard.REVERSIBLE),
        (with_body("POST", f"{NAMESPACE}/replication", ["blue"]), Hazard.DESTRUCTIVE),
        (with_body("POST", f"{NAMESPACE}/replication", ["green"]), Hazard.NONE),
    ],
)
def test_a_call_has_a_hazard_whatever_the_plan_says(call: Any, hazard: Hazard) -> None:
    assert worst(*(risk.hazard for risk in risks_of_calls([call], "green"))) is hazard


VERBS = (
    "clearBacklog",
    "expireMessages",
    "migration",
    "partitions",
    "policies",
    "resetcursor",
    "skip_all",
    "terminate",
    "trim",
    "truncate",
    "unload",
)


@pytest.mark.parametrize("name", VERBS)
def test_a_resource_named_like_a_call_is_created_without_a_hazard(name: str) -> None:
    calls = [
        with_body("PUT", f"/tenants/{name}", {"allowedClusters": ["green"]}),
        with_body("POST", f"/tenants/{name}", {"allowedClusters": ["green"]}),
        with_body("PUT", f"/namespaces/acme/{name}", {"replication_clusters": ["green"]}),
        with_body("POST", f"/namespaces/{name}/{name}/retention", {}),
        bare("PUT", f"/persistent/acme/orders/{name}"),
        with_body("POST", f"/persistent/acme/{name}/{name}/retention", {}),
        with_body("PUT", f"{TOPIC}/subscription/{name}", {}),
        with_body("PUT", f"{TOPIC}/subscription/{name}/properties", {}),
        with_body("POST", f"{NAMESPACE}/permissions/{name}", ["consume"]),
        with_body("POST", f"{NAMESPACE}/permissions/subscription/{name}", ["app"]),
        with_body("POST", f"{TOPIC}/permissions/{name}", ["consume"]),
        with_body("POST", f"/schemas/acme/orders/{name}/schema", {}),
        with_body("PUT", f"/resourcegroups/{name}", {}),
        with_body("PUT", f"/clusters/{name}", {}),
    ]
    assert {call.text(): [risk.reason for risk in risks_of_calls([call], "green")] for call in calls} == {
        call.text(): [] for call in calls
    }


@pytest.mark.parametrize(
    ("call", "hazard"),
    [
        (bare("POST", f"{NAMESPACE}/clearBacklog"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{NAMESPACE}/clearBacklog/s"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{NAMESPACE}/0x00_0xff/clearBacklog/s"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{NAMESPACE}/unsubscribe/s"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{NAMESPACE}/0x00_0xff/unsubscribe/s"), Hazard.DESTRUCTIVE),
        (with_body("POST", f"{NAMESPACE}/migration", True), Hazard.DESTRUCTIVE),
        (bare("POST", f"{TOPIC}/terminate"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{TOPIC}/terminate/partitions"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{TOPIC}/trim"), Hazard.DESTRUCTIVE),
        (bare("DELETE", f"{TOPIC}/truncate"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{TOPIC}/subscription/trim/skip_all"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{TOPIC}/subscription/s/skip/5"), Hazard.DESTRUCTIVE),
        (bare("POST", f"{TOPIC}/subscription/skip_all/resetcursor"), Hazard.IRREVERSIBLE),
        (bare("POST", f"{TOPIC}/subscription/s/expireMessages/5"), Hazard.IRREVERSIBLE),
        (bare("POST", f"{TOPIC}/all_subscription/expireMessages/5"), Hazard.IRREVERSIBLE),
        (with_body("POST", "/persistent/acme/orders/trim/partitions", 8), Hazard.IRREVERSIBLE),
    ],
)
def test_each_call_that_loses_something_has_a_hazard(call: Any, hazard: Hazard) -> None:
    assert worst(*(risk.hazard for risk in risks_of_calls([call], "green"))) is hazard


@pytest.mark.parametrize("field", ["deleted", "migrated"])
def test_a_namespace_is_never_born_deleted_or_migrated(field: str) -> None:
    call = with_body("PUT", NAMESPACE, {"replication_clusters": ["green"], field: True})
    with pytest.raises(PreconditionFailed, match=f"created as {field}"):
        guard_call(call, "green")


RETENTION = "retention_policies"
TTL = "message_ttl_in_seconds"
QUOTA = "backlog_quota_map"
INACTIVE = "inactive_topic_policies"


def evicting(size: int, policy: str = "consumer_backlog_eviction") -> dict[str, Any]:
    return {"destination_storage": {"limitSize": size, "policy": policy}}


@pytest.mark.parametrize(
    ("field", "before", "after", "hazard", "reason"),
    [
        (RETENTION, {"retentionSizeInMB": 10}, {"retentionSizeInMB": 5}, "irreversible", "retention is shorter"),
        (RETENTION, {"retentionSizeInMB": -1}, {"retentionSizeInMB": 5}, "irreversible", "retention is shorter"),
        (RETENTION, {"retentionSizeInMB": 10}, None, "irreversible", "retention is shorter"),
        (RETENTION, {"retentionSizeInMB": 10}, {"retentionSizeInMB": -1}, "none", ""),
        (TTL, 100, 50, "irreversible", "expire sooner"),
        (TTL, None, 50, "irreversible", "expire sooner"),
        (TTL, 50, None, "none", ""),
        ("subscription_expiration_time_minutes", 9, 5, "irreversible", "idle subscriptions"),
        (QUOTA, None, evicting(1), "irreversible", "discards the oldest"),
        (QUOTA, None, evicting(1, "producer_exception"), "none", ""),
        (INACTIVE, None, {"deleteWhileInactive": True}, "irreversible", "deletes inactive topics"),
        ("entryFilters", None, {"entryFilterNames": "f"}, "irreversible", "are acknowledged"),
        ("offload_policies", {"s3ManagedLedgerOffloadBucket": "a"}, None, "irreversible", "can no longer be read"),
        ("offload_policies", None, {"s3ManagedLedgerOffloadBucket": "a"}, "none", ""),
        ("replication_clusters", ["blue", "green"], ["green"], "irreversible", "never arrive there"),
        ("replication_clusters", ["green"], ["blue", "green"], "reversible", "new messages are replicated"),
        ("max_producers_per_topic", 10, 5, "reversible", "above the lower limit"),
        ("max_producers_per_topic", 5, 10, "none", ""),
        ("publishMaxMessageRate", None, {"publishThrottlingRateInMsg": 5}, "reversible", "above the lower limit"),
        ("auth_policies", {"namespace_auth": {"app": ["consume", "produce"]}}, APP, "destructive", "revoked"),
        ("auth_policies", {"destination_auth": {TOPIC: {"app": ["consume"]}}}, APP, "destructive", "revoked"),
        ("auth_policies", {"subscription_auth_roles": {"s": ["app"]}}, None, "destructive", "revoked"),
        ("auth_policies", APP, {"namespace_auth": {"app": ["consume", "produce"]}}, "none", ""),
        ("encryption_required", None, True, "reversible", "do not comply"),
        ("is_allow_auto_update_schema", True, False, "reversible", "do not comply"),
    ],
)
def test_going_from_one_value_to_another_has_a_hazard_and_a_reason(
    field: str, before: Any, after: Any, hazard: str, reason: str
) -> None:
    marks = risks_of_values([ValueChange(Resource.POLICY, field, before, after)])
    assert worst(*(mark.hazard for mark in marks)) is Hazard(hazard)
    assert reason in "".join(mark.reason for mark in marks)


def test_a_tenant_that_loses_an_administrator_has_a_reason() -> None:
    before, after = ({"adminRoles": roles, "allowedClusters": ["green"]} for roles in (["a", "b"], ["a"]))
    (risk,) = risks_of_values([ValueChange(Resource.TENANT, "", before, after)])
    assert (risk.hazard, "revoked" in risk.reason) == (Hazard.DESTRUCTIVE, True)


def test_every_policy_that_discards_messages_has_a_reason() -> None:
    """The catalogues say what discards messages; the table of rules says why that is dangerous."""
    topic_fields = {policy.namespace_field or name for name, policy in TOPIC_BY_FIELD.items() if policy.loses_data}
    discarding = {name for name, policy in BY_FIELD.items() if policy.loses_data} | topic_fields
    assert discarding == set(DISCARDS)


def test_the_worst_hazard_counts() -> None:
    assert worst(Hazard.REVERSIBLE, Hazard.DESTRUCTIVE, Hazard.NONE) is Hazard.DESTRUCTIVE
