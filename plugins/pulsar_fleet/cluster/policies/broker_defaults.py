"""The broker settings in effect while a policy with several parts is not set: (part of the value, key) (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.policies.model import Parts

RETENTION: Parts = (
    ("retentionTimeInMinutes", "defaultRetentionTimeInMinutes"),
    ("retentionSizeInMB", "defaultRetentionSizeInMB"),
)
# One default for both types of quota; a limit in GB wins over the one in bytes.
BACKLOG_QUOTA: Parts = (
    ("limitSize", "backlogQuotaDefaultLimitBytes"),
    ("limitSizeInGB", "backlogQuotaDefaultLimitGB"),
    ("limitTime", "backlogQuotaDefaultLimitSecond"),
    ("policy", "backlogQuotaDefaultRetentionPolicy"),
)
# If the duration is not set, the broker uses the frequency of the check.
INACTIVE_TOPICS: Parts = (
    ("inactiveTopicDeleteMode", "brokerDeleteInactiveTopicsMode"),
    ("maxInactiveDurationSeconds", "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds"),
    ("checkedEverySeconds", "brokerDeleteInactiveTopicsFrequencySeconds"),
    ("deleteWhileInactive", "brokerDeleteInactiveTopicsEnabled"),
)
SUBSCRIBE_RATE: Parts = (
    ("subscribeThrottlingRatePerConsumer", "subscribeThrottlingRatePerConsumer"),
    ("ratePeriodInSecond", "subscribeRatePeriodPerConsumerInSecond"),
)
PUBLISH_RATE: Parts = (
    ("publishThrottlingRateInMsg", "maxPublishRatePerTopicInMessages"),
    ("publishThrottlingRateInByte", "maxPublishRatePerTopicInBytes"),
)
PERSISTENCE: Parts = (
    ("bookkeeperEnsemble", "managedLedgerDefaultEnsembleSize"),
    ("bookkeeperWriteQuorum", "managedLedgerDefaultWriteQuorum"),
    ("bookkeeperAckQuorum", "managedLedgerDefaultAckQuorum"),
    ("managedLedgerMaxMarkDeleteRate", "managedLedgerDefaultMarkDeleteRateLimit"),
)
TOPIC_CREATION: Parts = (
    ("allowAutoTopicCreation", "allowAutoTopicCreation"),
    ("topicType", "allowAutoTopicCreationType"),
    ("defaultNumPartitions", "defaultNumPartitions"),
)
SUBSCRIPTION_CREATION: Parts = (("allowAutoSubscriptionCreation", "allowAutoSubscriptionCreation"),)
DELAYED_DELIVERY: Parts = (
    ("active", "delayedDeliveryEnabled"),
    ("tickTime", "delayedDeliveryTickTimeMillis"),
    ("maxDeliveryDelayInMillis", "delayedDeliveryMaxDelayInMillis"),
)
OFFLOAD: Parts = (
    ("managedLedgerOffloadDriver", "managedLedgerOffloadDriver"),
    ("managedLedgerOffloadThresholdInBytes", "managedLedgerOffloadAutoTriggerSizeThresholdBytes"),
    ("managedLedgerOffloadThresholdInSeconds", "managedLedgerOffloadThresholdInSeconds"),
    ("managedLedgerOffloadDeletionLagInMillis", "managedLedgerOffloadDeletionLagMs"),
)
ENTRY_FILTERS: Parts = (("entryFilterNames", "entryFilterNames"),)


def dispatch_rate(owner: str) -> Parts:
    """The throttling of a `Topic`, a `Subscription` or a `Replicator`."""
    return (
        ("dispatchThrottlingRateInMsg", f"dispatchThrottlingRatePer{owner}InMsg"),
        ("dispatchThrottlingRateInByte", f"dispatchThrottlingRatePer{owner}InByte"),
    )
