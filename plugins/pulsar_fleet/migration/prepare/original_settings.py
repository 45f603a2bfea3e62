"""Blue's settings before a migration overrode them, enough to restore them exactly (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState

DELETION = "brokerDeleteInactiveTopicsEnabled"
"""Pattern consumers lose topics on green when blue deletes them (observed): it stays off after the cut-over."""

FROZEN_SETTINGS: Mapping[str, str] = {
    # An unloaded topic of a flagged namespace cannot be loaded again: no bundle may move during the drain.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
    DELETION: "false",
}
REPLICATION_START = ("replicationStartAt", "earliest")

QUIESCED_RATE: JsonObject = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": 1}
"""The first publish of each producer passes, and none after it: a publish of n bytes puts the topic n - 1 seconds into
debt. By messages alone, one that is not batched passes each second, and may be under way at the termination."""

_INACTIVE = "inactiveTopicPolicies"
_NEVER_INACTIVE: JsonObject = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 3600,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalSettings(Document):
    """The original values of what the migration overrides on blue.

    :param dynamic: setting → its override, None where there was none (it is then removed, not set).
    :param effective: broker → setting → its effective value; each broker has its own configuration file.
    :param publish_rates: namespace → its publish rate, None where there was none.
    :param replication: namespace → its `replication_clusters`.
    :param allowed: tenant → the clusters that it allows.
    :param inactive: namespace → its inactive-topic policies, None where there were none.
    :param topic_rates: topic with its own publish rate → the local rate, None where only a global rate is set.
    :param topic_inactive: topic with its own inactive-topic policies → the local policies, None as above.
    """

    SCHEMA_VERSION = 2

    dynamic: Mapping[str, str | None]
    publish_rates: Mapping[str, JsonObject | None]
    replication: Mapping[str, list[str]]
    effective: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    allowed: Mapping[str, list[str]] = field(default_factory=dict)
    inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """The namespaces whose settings it holds."""
        return tuple(NamespaceName.parse(text) for text in self.publish_rates)

    def own_rates(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have their own publish rate."""
        return _within(self.topic_rates, namespace)

    def own_inactive(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have their own inactive-topic policies."""
        return _within(self.topic_inactive, namespace)


def never_deleting(policies: Json) -> JsonObject:
    """These inactive-topic policies, changed so that they delete nothing."""
    return {**(policies or _NEVER_INACTIVE), "deleteWhileInactive": False}


def without_overrides(snapshot: Snapshot, original: OriginalSettings, green: str) -> Snapshot:
    """The snapshot of blue without the run's own overrides, which must not be copied to green.

    It replaces only values that equal the override: a value that somebody else has set since stays.
    """
    own = snapshot.cluster
    return replace(
        snapshot,
        tenants=tuple(_original_tenant(state, original, green) for state in snapshot.tenants),
        namespaces=tuple(_original_namespace(state, original, own, green) for state in snapshot.namespaces),
        topic_policies=tuple(_original_topic(state, original) for state in snapshot.topic_policies),
    )


def _original_tenant(state: TenantState, original: OriginalSettings, green: str) -> TenantState:
    allowed = original.allowed.get(state.name)
    overridden = allowed is not None and set(state.allowed_clusters) == {*allowed, green}
    return replace(state, allowed_clusters=tuple(sorted(allowed or ()))) if overridden else state


def _original_namespace(state: NamespaceState, original: OriginalSettings, own: str, green: str) -> NamespaceState:
    if state.name not in original.publish_rates:
        return state
    document = dict(state.policies)
    document["inactive_topic_policies"] = _without_override(
        document.get("inactive_topic_policies"),
        original.inactive.get(state.name),
        never_deleting(original.inactive.get(state.name)),
    )
    rates = dict(document.get("publishMaxMessageRate") or {})
    rates[own] = _without_override(rates.get(own), original.publish_rates[state.name], QUIESCED_RATE)
    document["publishMaxMessageRate"] = {cluster: rate for cluster, rate in rates.items() if rate is not None}
    clusters = original.replication[state.name]
    if set(document.get("replication_clusters") or ()) == {*clusters, own, green}:
        document["replication_clusters"] = clusters
    return NamespaceState(state.name, document)


def _original_topic(state: TopicPolicyState, original: OriginalSettings) -> TopicPolicyState:
    if state.scope != Scope.LOCAL:
        return state
    document = dict(state.policies)
    if state.topic in original.topic_rates:
        rate = original.topic_rates[state.topic]
        document["publishRate"] = _without_override(document.get("publishRate"), rate, QUIESCED_RATE)
    if state.topic in original.topic_inactive:
        own = original.topic_inactive[state.topic]
        document[_INACTIVE] = _without_override(document.get(_INACTIVE), own, never_deleting(own))
    return replace(state, policies=document)


def _without_override(value: Json, original: JsonObject | None, override: JsonObject) -> Json:
    return original if value == override else value


def _within(topics: Mapping[str, JsonObject | None], namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
    named = {TopicName.parse(text): value for text, value in topics.items()}
    return {topic: value for topic, value in named.items() if topic.namespace == namespace}
