"""Which value counts where a policy is not set: a topic's, its global one, the namespace's, the broker's (pure).

A retention that is set on a topic can lower what the namespace keeps, and one that is unset can fall to a broker's
default: what a change does to messages shows only in the values that are in force before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.change.difference import Resource
from pulsar_fleet.change.hazard_rules import Setting
from pulsar_fleet.change.plan import Change
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.states import BrokerState

# Topic policies under the name that the same policy has in a namespace.
NAMESPACE_FIELDS: Mapping[str, str] = {
    "retentionPolicies": "retention_policies",
    "backLogQuotaMap": "backlog_quota_map",
    "messageTTLInSeconds": "message_ttl_in_seconds",
    "subscriptionExpirationTimeInMinutes": "subscription_expiration_time_minutes",
    "inactiveTopicPolicies": "inactive_topic_policies",
    "offloadPolicies": "offload_policies",
    "replicationClusters": "replication_clusters",
    "schemaValidationEnforced": "schema_validation_enforced",
    "subscriptionTypesEnabled": "subscription_types_enabled",
}
_QUOTAS = "backlog_quota_map"
Documents = Mapping[str, JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Comparable documents of the target, before the plan and as it leaves them.

    :param brokers: every broker's defaults, by the name of the namespace policy.
    :param namespaces: of `before`, by name.
    :param topics: of `before`, by topic and scope.
    """

    brokers: tuple[JsonObject, ...]
    namespaces: Documents
    topics: Mapping[tuple[str, str], JsonObject]
    namespaces_after: Documents = field(default_factory=dict)
    topics_after: Mapping[tuple[str, str], JsonObject] = field(default_factory=dict)

    def settings(self, change: Change) -> Iterator[Setting]:
        """Every pair of values that may be in force before and after the change; others may be left out of the plan."""
        if change.resource is Resource.POLICY:
            for broker in self.brokers:
                sides = [
                    _resolve(change.field, value, broker.get(change.field)) for value in (change.before, change.after)
                ]
                yield Setting(change.resource, change.field, *sides)
        elif change.resource is Resource.TOPIC_POLICY:
            yield from self._of_topic(change)
        else:
            yield Setting(change.resource, change.field, change.before, change.after)

    def _of_topic(self, change: Change) -> Iterator[Setting]:
        scope, _, name = change.field.partition("/")
        policy = NAMESPACE_FIELDS.get(name, name)
        namespace = str(change.namespace)
        over = [self._global(self.topics, change.name, name), self._global(self.topics_after, change.name, name)]
        if scope == "global":
            over = [None, None]
        below = [documents.get(namespace, {}).get(policy) for documents in (self.namespaces, self.namespaces_after)]
        for broker in self.brokers:
            default = broker.get(policy)
            before = _resolve(policy, change.before, over[0], below[0], default)
            for wide in over:
                for held in below:
                    yield Setting(change.resource, policy, before, _resolve(policy, change.after, wide, held, default))

    def _global(self, topics: Mapping[tuple[str, str], JsonObject], topic: str, name: str) -> Json:
        return topics.get((topic, "global"), {}).get(name)


_EVICTS = {"policy": "consumer_backlog_eviction"}
_KEEPS = {"policy": "producer_request_hold"}
NOTHING_KNOWN = InForce(
    brokers=(
        {
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            "message_ttl_in_seconds": 0,
            "subscription_expiration_time_minutes": 0,
            "inactive_topic_policies": {"deleteWhileInactive": False},
            _QUOTAS: {"destination_storage": {"limitSize": -1, **_KEEPS}, "message_age": {"limitTime": -1, **_KEEPS}},
        },
        {
            "retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
            "message_ttl_in_seconds": 1,
            "subscription_expiration_time_minutes": 1,
            "inactive_topic_policies": {"deleteWhileInactive": True},
            _QUOTAS: {"destination_storage": {"limitSize": 1, **_EVICTS}, "message_age": {"limitTime": 1, **_EVICTS}},
        },
    ),
    namespaces={},
    topics={},
)
"""Where nobody has looked at what is in force: brokers that keep everything and brokers that keep nothing."""


def broker_defaults(brokers: Iterable[BrokerState]) -> tuple[JsonObject, ...]:
    """What each broker does where nothing is set; Pulsar's own defaults stand for what a broker does not tell."""
    found = tuple(_defaults(broker.configuration) for broker in brokers)
    return found or (_defaults({}),)


def _defaults(configuration: Mapping[str, Json]) -> JsonObject:
    def number(key: str, default: int = 0) -> int:
        return int(float(configuration.get(key) or default))

    size = number("backlogQuotaDefaultLimitBytes", -1)
    policy = configuration.get("backlogQuotaDefaultRetentionPolicy") or "producer_request_hold"
    deletes = str(configuration.get("brokerDeleteInactiveTopicsEnabled", "true")) == "true"
    return {
        "retention_policies": {
            "retentionTimeInMinutes": number("defaultRetentionTimeInMinutes"),
            "retentionSizeInMB": number("defaultRetentionSizeInMB"),
        },
        "message_ttl_in_seconds": number("ttlDurationDefaultInSeconds"),
        "subscription_expiration_time_minutes": number("subscriptionExpirationTimeMinutes"),
        "inactive_topic_policies": {"deleteWhileInactive": deletes},
        _QUOTAS: {
            "destination_storage": {
                "limitSize": size if size >= 0 else number("backlogQuotaDefaultLimitGB", -1) << 30,
                "policy": policy,
            },
            "message_age": {"limitTime": number("backlogQuotaDefaultLimitSecond", -1), "policy": policy},
        },
    }


def _resolve(name: str, *layers: Json) -> Json:
    """The first layer that says something; quotas count type by type."""
    if name == _QUOTAS:
        merged: JsonObject = {}
        for layer in reversed(layers):
            merged |= layer or {}
        return merged
    return next((layer for layer in layers if layer is not None), None)
