"""What keeps read messages on blue: a topic's policy, the namespace's, or the default of the brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.snapshots import full_pair

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.facts import EffectivePolicies, retained_by
from pulsar_fleet.snapshot.model import BrokerState, NamespaceState, Snapshot, TopicPolicyState

NAME = NamespaceName("acme", "orders")
TOPIC = "persistent://acme/orders/events"
HOUR = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}
NONE = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
DEFAULTS = {"defaultRetentionTimeInMinutes": "0", "defaultRetentionSizeInMB": "0"}


def blue(namespace: JsonObject, *topics: TopicPolicyState, **settings: str) -> Snapshot:
    """A cluster with this namespace, these policies of topics and these settings of its brokers."""
    return replace(
        full_pair().source,
        namespaces=(NamespaceState(str(NAME), namespace),),
        topic_policies=topics,
        brokers=(BrokerState("localhost:8080", "4.2.4", {**DEFAULTS, **settings}),),
    )


def of_topic(retention: JsonObject, scope: str = "local") -> TopicPolicyState:
    return TopicPolicyState(TOPIC, scope, {"retentionPolicies": retention}, 0)


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (blue({}), ""),
        (blue({"retention_policies": HOUR}), "the namespace"),
        (blue({"retention_policies": NONE}, defaultRetentionTimeInMinutes="60"), ""),
        (blue({}, defaultRetentionTimeInMinutes="60"), "the brokers' default"),
        (blue({}, defaultRetentionSizeInMB="-1"), "the brokers' default"),
        (blue({}, of_topic(HOUR)), f"topic {TOPIC}"),
        (blue({}, of_topic(HOUR, "global")), f"topic {TOPIC}"),
        (blue({"retention_policies": HOUR}, of_topic(NONE)), "the namespace"),
        (blue({}, TopicPolicyState("persistent://acme/other/events", "local", {"retentionPolicies": HOUR}, 0)), ""),
    ],
)
def test_the_first_layer_that_retains_is_named(snapshot: Snapshot, expected: str) -> None:
    assert retained_by(EffectivePolicies(snapshot)) == {str(NAME): expected}


def test_a_namespace_that_does_not_exist_retains_nothing() -> None:
    assert "acme/else" not in retained_by(EffectivePolicies(blue({}, defaultRetentionTimeInMinutes="60")))
