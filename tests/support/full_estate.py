"""An estate that uses as much of Pulsar's metadata as one namespace can hold."""

from __future__ import annotations

import json

from tests.support.version_differences import Settings, set_all

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName

RATE = {
    "dispatchThrottlingRateInMsg": 100,
    "dispatchThrottlingRateInByte": 200_000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
RETENTION = {"retentionTimeInMinutes": 600, "retentionSizeInMB": 1000}
PERSISTENCE = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 2.0,
}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 86_400,
    "deleteWhileInactive": False,
}
DELAYED = {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 10_000}
SIZE_QUOTA = {"limitSize": 1_000_000, "limitTime": -1, "policy": "producer_exception"}
AGE_QUOTA = {"limitSize": -1, "limitTime": 3000, "policy": "producer_request_hold"}
TYPES = ["Exclusive", "Failover", "Key_Shared", "Shared"]
PUBLISH = {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": 1000}
SUBSCRIBE = {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30}

# (path, body, query), set by POST unless the path says PUT; None is no body.
NAMESPACE_SETTINGS: Settings = (
    ("permissions/reader", ["consume"], {}),
    ("permissions/writer", ["produce", "consume"], {}),
    ("permissions/subscription/billing", ["reader"], {}),
    ("retention", RETENTION, {}),
    ("backlogQuota", SIZE_QUOTA, {}),
    ("backlogQuota", AGE_QUOTA, {"backlogQuotaType": "message_age"}),
    ("dispatchRate", RATE, {}),
    ("subscriptionDispatchRate", RATE, {}),
    ("replicatorDispatchRate", RATE, {}),
    ("subscribeRate", SUBSCRIBE, {}),
    ("publishRate", PUBLISH, {}),
    ("persistence", PERSISTENCE, {}),
    ("deduplication", True, {}),
    ("deduplicationSnapshotInterval", 500, {}),
    ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}, {}),
    ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}, {}),
    ("messageTTL", 3600, {}),
    ("subscriptionExpirationTime", 100, {}),
    ("delayedDelivery", DELAYED, {}),
    ("inactiveTopicPolicies", INACTIVE, {}),
    ("subscriptionAuthMode", "Prefix", {}),
    ("maxProducersPerTopic", 11, {}),
    ("maxConsumersPerTopic", 12, {}),
    ("maxConsumersPerSubscription", 13, {}),
    ("maxUnackedMessagesPerConsumer", 14, {}),
    ("maxUnackedMessagesPerSubscription", 15, {}),
    ("maxSubscriptionsPerTopic", 16, {}),
    ("maxTopicsPerNamespace", 170, {}),
    ("PUT compactionThreshold", 1000, {}),
    ("PUT offloadThreshold", 5000, {}),
    ("PUT offloadDeletionLagMs", 500, {}),
    ("PUT schemaCompatibilityStrategy", "FULL", {}),
    ("PUT schemaAutoUpdateCompatibilityStrategy", "Full", {}),
    ("isAllowAutoUpdateSchema", False, {}),
    ("schemaValidationEnforced", True, {}),
    ("subscriptionTypesEnabled", TYPES, {}),
    ("allowedTopicPropertyKeysForMetrics", ["team"], {}),
    ("PUT properties", {"owner": "billing"}, {}),
    ("dispatcherPauseOnAckStatePersistent", None, {}),
    ("antiAffinity", "group-a", {}),
    ("persistence/bookieAffinity", {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": ""}, {}),
)

TOPIC_SETTINGS: Settings = (
    ("retention", RETENTION, {}),
    ("backlogQuota", SIZE_QUOTA, {}),
    ("backlogQuota", AGE_QUOTA, {"backlogQuotaType": "message_age"}),
    ("messageTTL", None, {"messageTTL": "77"}),
    ("subscriptionExpirationTime", None, {"subscriptionExpirationTime": "78"}),
    ("maxUnackedMessagesOnConsumer", 5, {}),
    ("maxUnackedMessagesOnSubscription", 6, {}),
    ("deduplicationSnapshotInterval", 7, {}),
    ("inactiveTopicPolicies", INACTIVE, {}),
    ("delayedDelivery", DELAYED, {}),
    ("deduplicationEnabled", True, {}),
    ("dispatcherPauseOnAckStatePersistent", None, {}),
    ("persistence", PERSISTENCE, {}),
    ("maxSubscriptionsPerTopic", 8, {}),
    ("maxProducers", 9, {}),
    ("maxConsumers", 10, {}),
    ("maxMessageSize", 1000, {}),
    ("dispatchRate", RATE, {}),
    ("replicatorDispatchRate", RATE, {}),
    ("subscriptionDispatchRate", RATE, {}),
    ("billing/dispatchRate", RATE, {}),
    ("compactionThreshold", 1000, {}),
    ("maxConsumersPerSubscription", 11, {}),
    ("publishRate", PUBLISH, {}),
    ("subscribeRate", SUBSCRIBE, {}),
    ("subscriptionTypesEnabled", TYPES, {}),
    ("PUT schemaCompatibilityStrategy", "BACKWARD", {}),
    ("schemaValidationEnforced", True, {}),
    ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": True}, {}),
    ("maxProducers", 19, {"isGlobal": "true"}),
)


def avro(*fields: tuple[str, str]) -> dict[str, Json]:
    """An Avro schema with these fields, as the schema endpoint takes it."""
    record = {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return {"type": "AVRO", "schema": json.dumps(record), "properties": {"team": "billing"}}


# The second version is not compatible with the first under FULL: it was accepted under another strategy.
HISTORY = (avro(("id", "string")), avro(("id", "string"), ("amount", "int")))


async def make_namespace(admin: AdminClient, namespace: NamespaceName) -> None:
    """Create a tenant and a namespace without any policy, with four bundles: by default their number differs."""
    own = await admin.cluster_name()
    await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": ["owner"], "allowedClusters": [own]})
    await admin.put(f"/namespaces/{namespace.path}", {"replication_clusters": [own], "bundles": {"numBundles": 4}})


async def make_estate(admin: AdminClient, namespace: NamespaceName) -> None:
    """Fill a new namespace: policies, two topics, schema history, topic policies, subscriptions."""
    await make_namespace(admin, namespace)
    events = TopicName(namespace, "events")
    await admin.create_partitioned_topic(events, 3, {"team": "billing"})
    await admin.create_topic(TopicName(namespace, "plain"), {"kind": "log"})
    await admin.put(f"/non-persistent/{namespace.path}/ticks/partitions", 2)
    await admin.put(f"/namespaces/{namespace.path}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    for version in HISTORY:
        await admin.post_schema(events, version)
    for name in ("billing", "audit/all"):
        await admin.create_subscription(events, name)
    await admin.create_subscription(TopicName(namespace, "plain"), "tail", "latest")
    await set_all(admin, f"/{events.path}", TOPIC_SETTINGS)
    await set_all(admin, f"/namespaces/{namespace.path}", NAMESPACE_SETTINGS)
    await admin.post(f"/{events.path}/permissions/writer", ["produce"])
