from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.change.hazards import Hazard, guard_cluster_lists, hazard_of_call, hazard_of_setting, worst
from pulsar_fleet.cluster.call import bare, with_body
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.policies import BY_FIELD

NAMESPACE = "/namespaces/acme/orders"
TOPIC = "/persistent/acme/orders/events"
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
    with pytest.raises(Refused, match="without 'green' itself"):
        guard_cluster_lists(call(names), "green")


@pytest.mark.parametrize("call", LISTS)
@given(names=st.lists(st.sampled_from(["blue", "third"])))
def test_a_list_with_the_serving_cluster_passes(call: Any, names: list[str]) -> None:
    guard_cluster_lists(call([*names, "green"]), "green")


def test_a_global_list_of_a_topic_is_refused_whatever_it_names() -> None:
    with pytest.raises(Refused, match="every cluster that it leaves out"):
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
    ],
)
def test_a_call_has_a_hazard_whatever_the_plan_says(call: Any, hazard: Hazard) -> None:
    assert hazard_of_call(call) is hazard


@pytest.mark.parametrize(
    ("field", "before", "after", "hazard"),
    [
        ("retention_policies", {"retentionSizeInMB": 10}, {"retentionSizeInMB": 5}, Hazard.IRREVERSIBLE),
        ("retention_policies", {"retentionSizeInMB": -1}, {"retentionSizeInMB": 5}, Hazard.IRREVERSIBLE),
        ("retention_policies", {"retentionSizeInMB": 10}, None, Hazard.IRREVERSIBLE),
        ("retention_policies", {"retentionSizeInMB": 10}, {"retentionSizeInMB": -1}, Hazard.REVERSIBLE),
        ("message_ttl_in_seconds", 100, 50, Hazard.IRREVERSIBLE),
        ("message_ttl_in_seconds", None, 50, Hazard.IRREVERSIBLE),
        ("message_ttl_in_seconds", 50, None, Hazard.REVERSIBLE),
        (
            "backlog_quota_map",
            None,
            {"destination_storage": {"limitSize": 1, "policy": "consumer_backlog_eviction"}},
            Hazard.IRREVERSIBLE,
        ),
        (
            "backlog_quota_map",
            None,
            {"destination_storage": {"limitSize": 1, "policy": "producer_exception"}},
            Hazard.REVERSIBLE,
        ),
        ("inactive_topic_policies", None, {"deleteWhileInactive": True}, Hazard.IRREVERSIBLE),
        ("max_producers_per_topic", 10, 5, Hazard.REVERSIBLE),
    ],
)
def test_a_setting_is_irreversible_when_messages_are_discarded(
    field: str, before: Any, after: Any, hazard: Hazard
) -> None:
    assert hazard_of_setting(BY_FIELD[field].loses, before, after) is hazard


def test_the_worst_hazard_counts() -> None:
    assert worst(Hazard.REVERSIBLE, Hazard.DESTRUCTIVE, Hazard.NONE) is Hazard.DESTRUCTIVE
