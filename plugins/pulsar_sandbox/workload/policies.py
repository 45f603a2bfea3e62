"""Policies that an estate's namespaces and topics carry (pure). None can throttle or expire a demo's messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import Json, JsonObject

_GIB = 1024**3
_DAY_MINUTES = 1440


@dataclass(frozen=True, slots=True)
class PolicyProfile:
    """Policies of one kind of namespace; the broker keys those in `keyed` by its own cluster's name."""

    policies: JsonObject
    keyed: JsonObject = field(default_factory=dict)


def _retention(days: int, gib: int) -> JsonObject:
    return {"retentionTimeInMinutes": days * _DAY_MINUTES, "retentionSizeInMB": gib * 1024}


def _storage_quota(gib: int, policy: str) -> JsonObject:
    return {"destination_storage": {"limitSize": gib * _GIB, "limitTime": -1, "policy": policy}}


def _dispatch_rate(messages: int) -> JsonObject:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }


LIVE_POLICIES: JsonObject = {
    "bundles": {"numBundles": 4},
    "retention_policies": _retention(1, 1),
    "schema_compatibility_strategy": "BACKWARD",
    "max_consumers_per_topic": 100,
    "properties": {"owner": "team-orders", "criticality": "high"},
}
"""The live namespace: retention 1 day and 1 GiB, no rates."""

PROFILES: tuple[PolicyProfile, ...] = (
    PolicyProfile(
        {
            "bundles": {"numBundles": 4},
            "retention_policies": _retention(30, 50),
            "message_ttl_in_seconds": 14 * 86_400,
            "backlog_quota_map": _storage_quota(10, "producer_request_hold"),
            "schema_compatibility_strategy": "FULL",
            "max_producers_per_topic": 200,
        },
        keyed={"topicDispatchRate": _dispatch_rate(20_000)},
    ),
    PolicyProfile(
        {
            "bundles": {"numBundles": 2},
            "retention_policies": _retention(7, 10),
            "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
            "schema_compatibility_strategy": "BACKWARD_TRANSITIVE",
            "schema_validation_enforced": False,
            "deduplicationEnabled": True,
            "subscription_types_enabled": ["Exclusive", "Shared", "Failover", "Key_Shared"],
        },
        keyed={"publishMaxMessageRate": {"publishThrottlingRateInMsg": 50_000, "publishThrottlingRateInByte": -1}},
    ),
    PolicyProfile(
        {
            "bundles": {"numBundles": 1},
            "message_ttl_in_seconds": 7 * 86_400,
            "autoTopicCreationOverride": {
                "allowAutoTopicCreation": True,
                "topicType": "partitioned",
                "defaultNumPartitions": 3,
            },
            "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
            "delayed_delivery_policies": {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 0},
            "schema_compatibility_strategy": "ALWAYS_COMPATIBLE",
            "compaction_threshold": 100 * 1024**2,
        },
        keyed={"subscriptionDispatchRate": _dispatch_rate(30_000)},
    ),
    PolicyProfile(
        {
            "bundles": {"numBundles": 4},
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            "inactive_topic_policies": {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 86_400,
                "deleteWhileInactive": False,
            },
            "max_unacked_messages_per_consumer": 20_000,
            "subscription_expiration_time_minutes": 90 * _DAY_MINUTES,
            "is_allow_auto_update_schema": True,
        },
    ),
)
"""Given to the other namespaces in turn."""

LIVE_TOPIC_POLICIES: Mapping[str, Json] = {"retention": _retention(2, 2), "maxConsumers": 50}
"""Local topic policies of the live topic `audit`, by their path in the REST API."""

TOPIC_POLICIES: tuple[Mapping[str, Json], ...] = (
    {"retention": _retention(60, 80)},
    {"dispatchRate": _dispatch_rate(5_000), "maxConsumers": 20},
    {"deduplicationEnabled": False, "compactionThreshold": 50 * 1024**2},
    {"maxProducers": 40, "maxUnackedMessagesOnConsumer": 9_000},
)
"""Local topic policies of every fifth other topic, in turn."""
