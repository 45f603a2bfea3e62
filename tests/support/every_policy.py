"""A value other than the default for every policy of a broker, with the paths and bodies of its REST API.

They do not use the catalogues, so that the tests can detect a mistake there.
"""

from __future__ import annotations

from tests.support.version_differences import NO_BODY, Settings

RATE = {
    "dispatchThrottlingRateInMsg": 100,
    "dispatchThrottlingRateInByte": 200_000,
    "relativeToPublishRate": True,
    "ratePeriodInSecond": 3,
}
RETENTION = {"retentionTimeInMinutes": 600, "retentionSizeInMB": 1000}
SIZE_QUOTA = {"limitSize": 1_000_000, "limitTime": -1, "policy": "producer_exception"}
AGE_QUOTA = {"limitSize": -1, "limitTime": 3000, "policy": "producer_request_hold"}
PERSISTENCE = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 2.5,
    "managedLedgerStorageClassName": "bookkeeper",
}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 86_400,
    "deleteWhileInactive": False,
}
DELAYED = {"active": False, "tickTime": 2000, "maxDeliveryDelayInMillis": 10_000}
PUBLISH = {"publishThrottlingRateInMsg": 50, "publishThrottlingRateInByte": 1000}
SUBSCRIBE = {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 31}
TYPES = ["Shared", "Exclusive"]
OFFLOAD = {
    # As the brokers of the test see it from the folder that they run in.
    "offloadersDirectory": "../../../offloaders",
    "managedLedgerOffloadDriver": "aws-s3",
    "managedLedgerOffloadMaxThreads": 3,
    "managedLedgerOffloadPrefetchRounds": 4,
    "managedLedgerOffloadThresholdInBytes": 100_000,
    "managedLedgerOffloadThresholdInSeconds": 600,
    "managedLedgerOffloadDeletionLagInMillis": 70_000,
    "managedLedgerOffloadedReadPriority": "bookkeeper-first",
    "s3ManagedLedgerOffloadRegion": "eu-west-1",
    "s3ManagedLedgerOffloadBucket": "bucket",
    "s3ManagedLedgerOffloadCredentialId": "id",
    "s3ManagedLedgerOffloadCredentialSecret": "very-hush-hush",
    "s3ManagedLedgerOffloadRole": "role",
}
FILTERS = {"entryFilterNames": "everything"}
GLOBAL = {"isGlobal": "true"}

# The setter of offload policies clears the three older fields, so only a namespace created with all of them has all.
AT_CREATION = {
    "offload_policies": OFFLOAD,
    "bundles": {"numBundles": 7},
    "latency_stats_sample_rate": {"blue": 5},
    "offload_threshold": 1000,
    "offload_threshold_in_seconds": 100,
    "offload_deletion_lag_ms": 5000,
}
# (path, body, query), set by POST unless the path says PUT.
NAMESPACE_SETTINGS: Settings = (
    ("allowedClusters", ["blue", "third"], {}),
    ("replication", ["blue"], {}),
    ("retention", RETENTION, {}),
    ("backlogQuota", SIZE_QUOTA, {}),
    ("backlogQuota", AGE_QUOTA, {"backlogQuotaType": "message_age"}),
    ("messageTTL", 3600, {}),
    ("subscriptionExpirationTime", 100, {}),
    ("inactiveTopicPolicies", INACTIVE, {}),
    ("permissions/writer", ["produce", "consume"], {}),
    ("permissions/subscription/billing", ["reader"], {}),
    ("subscriptionAuthMode", "Prefix", {}),
    ("encryptionRequired", True, {}),
    ("dispatchRate", RATE, {}),
    ("subscriptionDispatchRate", RATE, {}),
    ("replicatorDispatchRate", RATE, {}),
    ("subscribeRate", SUBSCRIBE, {}),
    ("publishRate", PUBLISH, {}),
    ("persistence", PERSISTENCE, {}),
    ("deduplication", False, {}),
    ("deduplicationSnapshotInterval", 500, {}),
    ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}, {}),
    ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}, {}),
    ("delayedDelivery", DELAYED, {}),
    ("maxProducersPerTopic", 11, {}),
    ("maxConsumersPerTopic", 12, {}),
    ("maxConsumersPerSubscription", 13, {}),
    ("maxUnackedMessagesPerConsumer", 14, {}),
    ("maxUnackedMessagesPerSubscription", 15, {}),
    ("maxSubscriptionsPerTopic", 16, {}),
    ("maxTopicsPerNamespace", 170, {}),
    ("PUT compactionThreshold", 1000, {}),
    ("PUT schemaCompatibilityStrategy", "FORWARD_TRANSITIVE", {}),
    ("PUT schemaAutoUpdateCompatibilityStrategy", "Forward", {}),
    ("isAllowAutoUpdateSchema", False, {}),
    ("schemaValidationEnforced", True, {}),
    ("subscriptionTypesEnabled", TYPES, {}),
    ("allowedTopicPropertyKeysForMetrics", ["team"], {}),
    ("PUT properties", {"owner": "billing", "Ω": "a/b c"}, {}),
    ("resourcegroup/gold", NO_BODY, {}),
    ("dispatcherPauseOnAckStatePersistent", NO_BODY, {}),
    ("entryFilters", FILTERS, {}),
    (
        "persistence/bookieAffinity",
        {"bookkeeperAffinityGroupPrimary": "a", "bookkeeperAffinityGroupSecondary": ""},
        {},
    ),
    ("antiAffinity", "group-a", {}),
)
TOPIC_SETTINGS: Settings = (
    ("retention", RETENTION, {}),
    ("backlogQuota", SIZE_QUOTA, {}),
    ("backlogQuota", AGE_QUOTA, {"backlogQuotaType": "message_age"}),
    ("messageTTL", NO_BODY, {"messageTTL": "77"}),
    ("subscriptionExpirationTime", NO_BODY, {"subscriptionExpirationTime": "78"}),
    ("inactiveTopicPolicies", INACTIVE, {}),
    ("subscriptionTypesEnabled", TYPES, {}),
    ("replication", ["blue"], {}),
    ("persistence", PERSISTENCE, {}),
    ("deduplicationEnabled", False, {}),
    ("deduplicationSnapshotInterval", 7, {}),
    ("maxProducers", 9, {}),
    ("maxConsumers", 10, {}),
    ("maxConsumersPerSubscription", 11, {}),
    ("maxUnackedMessagesOnConsumer", 5, {}),
    ("maxUnackedMessagesOnSubscription", 6, {}),
    ("maxMessageSize", 1000, {}),
    ("maxSubscriptionsPerTopic", 8, {}),
    ("delayedDelivery", DELAYED, {}),
    ("dispatcherPauseOnAckStatePersistent", NO_BODY, {}),
    ("offloadPolicies", OFFLOAD, {}),
    ("dispatchRate", RATE, {}),
    ("subscriptionDispatchRate", RATE, {}),
    ("replicatorDispatchRate", RATE, {}),
    ("billing/dispatchRate", RATE, {}),
    ("a%2Bb%20c/dispatchRate", RATE, {}),
    ("publishRate", PUBLISH, {}),
    ("subscribeRate", SUBSCRIBE, {}),
    ("compactionThreshold", 1000, {}),
    ("entryFilters", FILTERS, {}),
    ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}, {}),
    ("PUT schemaCompatibilityStrategy", "BACKWARD", {}),
    ("schemaValidationEnforced", False, {}),
)
NOT_GLOBAL = ("PUT schemaCompatibilityStrategy", "schemaValidationEnforced", "replication")
