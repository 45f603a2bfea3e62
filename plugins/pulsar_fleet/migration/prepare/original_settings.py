"""How blue was before a migration held it still: enough to restore it exactly (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState

DELETION = "brokerDeleteInactiveTopicsEnabled"
"""Pattern consumers lose their topics on green when blue deletes them (observed), so it stays off after the switch."""

FROZEN_SETTINGS: Mapping[str, str] = {
    # An unloaded topic of a flagged namespace cannot be loaded again: nothing may move while it drains.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
    DELETION: "false",
}
REPLICATION_START = ("replicationStartAt", "earliest")

_NEVER_INACTIVE: JsonObject = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 3600,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What the migration overrides on blue, as it was.

    :param dynamic: setting → its override, None where there was none (then it is removed again, not set).
    :param effective: broker → setting → the value in force there; each broker has a configuration file of its own.
    :param publish_rates: namespace → its publish rate, None where there was none.
    :param replication: namespace → its `replication_clusters`.
    :param allowed: tenant → the clusters that it allows.
    :param inactive: namespace → its inactive-topic policies, None where there were none.
    :param topic_rates: topic with a publish rate of its own → the local one, None where only a global one is set.
    :param topic_inactive: topic with inactive-topic policies of its own → the local ones, None as above.
    """

    dynamic: Mapping[str, str | None]
    publish_rates: Mapping[str, JsonObject | None]
    replication: Mapping[str, list[str]]
    effective: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    allowed: Mapping[str, list[str]] = field(default_factory=dict)
    inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"schema_version": 2, **asdict(self)}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{key: value for key, value in found.items() if key != "schema_version"})

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """Those whose overrides it remembers."""
        return tuple(NamespaceName.parse(text) for text in self.publish_rates)

    def own_rates(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have a publish rate of their own."""
        return _within(self.topic_rates, namespace)

    def own_inactive(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have inactive-topic policies of their own."""
        return _within(self.topic_inactive, namespace)


def quiet_rate(before: Json) -> JsonObject:
    """A publish rate of 1 message/s, with the limit on bytes that was there: at 5 and 10 consumers died (observed)."""
    bytes_ = int((before or {}).get("publishThrottlingRateInByte") or -1)
    return {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": bytes_ if bytes_ > 0 else -1}


def never_deleting(before: Json) -> JsonObject:
    """Inactive-topic policies like these, which delete nothing."""
    return {**(before or _NEVER_INACTIVE), "deleteWhileInactive": False}


def as_before(snapshot: Snapshot, before: Frozen, green: str) -> Snapshot:
    """The snapshot of blue without the run's own overrides: they are never taken for what blue wants green to have.

    Only a value that is exactly the override is replaced: what somebody has set meanwhile counts as it is.
    """
    return replace(
        snapshot,
        tenants=tuple(_tenant_before(one, before, green) for one in snapshot.tenants),
        namespaces=tuple(_namespace_before(one, before, snapshot.cluster, green) for one in snapshot.namespaces),
        topic_policies=tuple(_topic_before(one, before) for one in snapshot.topic_policies),
    )


def _tenant_before(state: TenantState, before: Frozen, green: str) -> TenantState:
    was = before.allowed.get(state.name)
    ours = was is not None and set(state.allowed_clusters) == {*was, green}
    return replace(state, allowed_clusters=tuple(sorted(was or ()))) if ours else state


def _namespace_before(state: NamespaceState, before: Frozen, own: str, green: str) -> NamespaceState:
    if state.name not in before.publish_rates:
        return state
    found = dict(state.policies)
    found["inactive_topic_policies"] = _unless_ours(
        found.get("inactive_topic_policies"), before.inactive.get(state.name), never_deleting
    )
    rates = dict(found.get("publishMaxMessageRate") or {})
    rates[own] = _unless_ours(rates.get(own), before.publish_rates[state.name], quiet_rate)
    found["publishMaxMessageRate"] = {cluster: rate for cluster, rate in rates.items() if rate is not None}
    was = before.replication[state.name]
    if set(found.get("replication_clusters") or ()) == {*was, own, green}:
        found["replication_clusters"] = was
    return NamespaceState(state.name, found)


def _topic_before(state: TopicPolicyState, before: Frozen) -> TopicPolicyState:
    if state.scope != Scope.LOCAL:
        return state
    found = dict(state.policies)
    if state.topic in before.topic_rates:
        found["publishRate"] = _unless_ours(found.get("publishRate"), before.topic_rates[state.topic], quiet_rate)
    if state.topic in before.topic_inactive:
        found["inactiveTopicPolicies"] = _unless_ours(
            found.get("inactiveTopicPolicies"), before.topic_inactive[state.topic], never_deleting
        )
    return replace(state, policies=found)


def _unless_ours(now: Json, was: JsonObject | None, override: Callable[[Json], JsonObject]) -> Json:
    return was if now == override(was) else now


def _within(topics: Mapping[str, JsonObject | None], namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
    named = {TopicName.parse(text): value for text, value in topics.items()}
    return {topic: value for topic, value in named.items() if topic.namespace == namespace}
