"""The catalogue of topic policies: one row per policy of the documents in `__change_events` (pure).

All code for topic policies uses the rows, as for namespaces; they were observed with 3.0.7, 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from pulsar_fleet.cluster.policies.model import (
    TOPIC_CLUSTERS,
    Form,
    TopicPolicy,
    deletes_inactive,
    drops_name,
    evicts_backlog,
    lowered,
    shortened,
)
from pulsar_fleet.cluster.policies.namespace_catalogue import OFFLOAD_SECRETS

# In the order of setting, but for retention and backlog quota, as for namespaces.
TOPIC_CATALOGUE: tuple[TopicPolicy, ...] = (
    TopicPolicy(
        field="retentionPolicies",
        path="retention",
        loses_data=lowered("retentionTimeInMinutes", "retentionSizeInMB"),
        namespace_field="retention_policies",
    ),
    TopicPolicy(
        field="backLogQuotaMap",
        path="backlogQuota",
        form=Form.QUOTAS,
        after=("retentionPolicies",),
        loses_data=evicts_backlog,
        sections=("destination_storage", "message_age"),
        namespace_field="backlog_quota_map",
    ),
    TopicPolicy(
        field="messageTTLInSeconds",
        path="messageTTL",
        form=Form.IN_QUERY,
        loses_data=shortened,
        namespace_field="message_ttl_in_seconds",
    ),
    TopicPolicy(
        field="subscriptionExpirationTimeInMinutes",
        path="subscriptionExpirationTime",
        form=Form.IN_QUERY,
        loses_data=shortened,
        namespace_field="subscription_expiration_time_minutes",
        since="4.2",
    ),
    TopicPolicy(
        field="inactiveTopicPolicies",
        path="inactiveTopicPolicies",
        loses_data=deletes_inactive,
        namespace_field="inactive_topic_policies",
    ),
    TopicPolicy(
        field="subscriptionTypesEnabled",
        path="subscriptionTypesEnabled",
        form=Form.NAMES,
        namespace_field="subscription_types_enabled",
    ),
    TopicPolicy(
        field=TOPIC_CLUSTERS,
        path="replication",
        form=Form.CLUSTER_LIST,
        loses_data=drops_name,
        namespace_field="replication_clusters",
    ),
    TopicPolicy(field="persistence", path="persistence", namespace_field="persistence"),
    TopicPolicy(field="deduplicationEnabled", path="deduplicationEnabled", namespace_field="deduplicationEnabled"),
    TopicPolicy(
        field="deduplicationSnapshotIntervalSeconds",
        path="deduplicationSnapshotInterval",
        namespace_field="deduplicationSnapshotIntervalSeconds",
    ),
    TopicPolicy(field="maxProducerPerTopic", path="maxProducers", namespace_field="max_producers_per_topic"),
    TopicPolicy(field="maxConsumerPerTopic", path="maxConsumers", namespace_field="max_consumers_per_topic"),
    TopicPolicy(
        field="maxConsumersPerSubscription",
        path="maxConsumersPerSubscription",
        namespace_field="max_consumers_per_subscription",
    ),
    TopicPolicy(
        field="maxUnackedMessagesOnConsumer",
        path="maxUnackedMessagesOnConsumer",
        namespace_field="max_unacked_messages_per_consumer",
    ),
    TopicPolicy(
        field="maxUnackedMessagesOnSubscription",
        path="maxUnackedMessagesOnSubscription",
        namespace_field="max_unacked_messages_per_subscription",
    ),
    TopicPolicy(field="maxMessageSize", path="maxMessageSize", broker_default="maxMessageSize"),
    TopicPolicy(
        field="maxSubscriptionsPerTopic",
        path="maxSubscriptionsPerTopic",
        namespace_field="max_subscriptions_per_topic",
    ),
    TopicPolicy(
        field="delayedDelivery",
        path="delayedDelivery",
        form=Form.DELAYED,
        fields=("delayedDeliveryEnabled", "delayedDeliveryTickTimeMillis", "delayedDeliveryMaxDelayInMillis"),
        namespace_field="delayed_delivery_policies",
    ),
    TopicPolicy(
        field="dispatcherPauseOnAckStatePersistentEnabled",
        path="dispatcherPauseOnAckStatePersistent",
        form=Form.FLAG,
        namespace_field="dispatcherPauseOnAckStatePersistentEnabled",
        since="4.0",
    ),
    TopicPolicy(
        field="offloadPolicies",
        path="offloadPolicies",
        form=Form.OFFLOAD,
        secrets=OFFLOAD_SECRETS,
        namespace_field="offload_policies",
    ),
    TopicPolicy(field="dispatchRate", path="dispatchRate", namespace_field="topicDispatchRate"),
    TopicPolicy(
        field="subscriptionDispatchRate",
        path="subscriptionDispatchRate",
        namespace_field="subscriptionDispatchRate",
    ),
    TopicPolicy(
        field="replicatorDispatchRate",
        path="replicatorDispatchRate",
        namespace_field="replicatorDispatchRate",
    ),
    TopicPolicy(field="subscriptionPolicies", path="{subscription}/dispatchRate", form=Form.PER_SUBSCRIPTION),
    TopicPolicy(field="publishRate", path="publishRate", namespace_field="publishMaxMessageRate"),
    TopicPolicy(field="subscribeRate", path="subscribeRate", namespace_field="clusterSubscribeRate"),
    TopicPolicy(field="compactionThreshold", path="compactionThreshold", namespace_field="compaction_threshold"),
    TopicPolicy(field="entryFilters", path="entryFilters", namespace_field="entryFilters"),
    TopicPolicy(
        field="autoSubscriptionCreationOverride",
        path="autoSubscriptionCreation",
        namespace_field="autoSubscriptionCreationOverride",
    ),
    TopicPolicy(
        field="schemaCompatibilityStrategy",
        path="schemaCompatibilityStrategy",
        method="PUT",
        local_only=True,
        namespace_field="schema_compatibility_strategy",
    ),
    TopicPolicy(
        field="schemaValidationEnforced",
        path="schemaValidationEnforced",
        local_only=True,
        can_unset=False,
        namespace_field="schema_validation_enforced",
    ),
    TopicPolicy(field="shadowTopics", path="shadowTopics", method="PUT", form=Form.NOT_COPIED, local_only=True),
    TopicPolicy(field="isGlobal", form=Form.NOT_COPIED),
)
