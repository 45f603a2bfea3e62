"""The catalogue of namespace policies: one row per field of the broker's `Policies` document (pure).

Comparing, planning, setting, unsetting, translating, redacting and the page docs/fidelity.md use the rows, so that a
new policy needs only a new row. Methods, paths and values of unset fields were observed with Pulsar 3.0.7, 4.0.7 and
4.2.4; the broker defaults were read in 4.2.4's `AbstractTopic`; rows since 4.0 are those that 3.0.7 lacks; rows since
5.0 come from the classes of 5.0.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies import broker_defaults as defaults
from pulsar_fleet.cluster.policies.model import (
    Kind,
    Policy,
    Unset,
    deletes_inactive,
    drops_name,
    evicts_backlog,
    lowered,
    shortened,
)
from pulsar_fleet.cluster.versions import version_numbers

__all__ = [
    "BY_FIELD",
    "CATALOGUE",
    "KEYED_BY_CLUSTER",
    "LOCAL_FIELDS",
    "Kind",
    "Policy",
    "Unset",
    "is_supported",
    "unknown_fields",
]

OFFLOAD_SECRETS = ("s3ManagedLedgerOffloadCredentialSecret",)

# The order is the order of setting; that of retention and backlog quota depends on their values, see planning/changes/.
CATALOGUE: tuple[Policy, ...] = (
    Policy(
        field="allowed_clusters",
        path="allowedClusters",
        kind=Kind.CLUSTER_LIST,
        unset=Unset.IMPOSSIBLE,
        loses_data=drops_name,
    ),
    Policy(
        field="replication_clusters",
        path="replication",
        kind=Kind.CLUSTER_LIST,
        unset=Unset.IMPOSSIBLE,
        after=("allowed_clusters",),
        loses_data=drops_name,
    ),
    Policy(
        field="retention_policies",
        path="retention",
        loses_data=lowered("retentionTimeInMinutes", "retentionSizeInMB"),
        broker_default=defaults.RETENTION,
    ),
    Policy(
        field="backlog_quota_map",
        path="backlogQuota",
        kind=Kind.QUOTAS,
        after=("retention_policies",),
        loses_data=evicts_backlog,
        sections=("destination_storage", "message_age"),
        broker_default=defaults.BACKLOG_QUOTA,
        needs=("backlogQuotaCheckEnabled",),
    ),
    Policy(
        field="message_ttl_in_seconds",
        path="messageTTL",
        loses_data=shortened,
        broker_default="ttlDurationDefaultInSeconds",
    ),
    Policy(
        field="subscription_expiration_time_minutes",
        path="subscriptionExpirationTime",
        loses_data=shortened,
        broker_default="subscriptionExpirationTimeMinutes",
    ),
    Policy(
        field="inactive_topic_policies",
        path="inactiveTopicPolicies",
        loses_data=deletes_inactive,
        broker_default=defaults.INACTIVE_TOPICS,
        needs=("brokerDeleteInactiveTopicsEnabled",),
    ),
    Policy(
        field="auth_policies",
        path="permissions",
        kind=Kind.GRANTS,
        sections=("namespace_auth", "destination_auth", "subscription_auth_roles"),
        needs=("authorizationEnabled",),
    ),
    Policy(field="subscription_auth_mode", path="subscriptionAuthMode", default="None", unset=Unset.DEFAULT),
    Policy(
        field="encryption_required",
        path="encryptionRequired",
        default=False,
        unset=Unset.DEFAULT,
        broker_default="encryptionRequireOnProducer",
    ),
    Policy(
        field="topicDispatchRate",
        path="dispatchRate",
        kind=Kind.CLUSTER_MAP,
        broker_default=defaults.dispatch_rate("Topic"),
    ),
    Policy(field="clusterDispatchRate", kind=Kind.MIRROR),
    Policy(
        field="subscriptionDispatchRate",
        path="subscriptionDispatchRate",
        kind=Kind.CLUSTER_MAP,
        broker_default=defaults.dispatch_rate("Subscription"),
    ),
    Policy(
        field="replicatorDispatchRate",
        path="replicatorDispatchRate",
        kind=Kind.CLUSTER_MAP,
        broker_default=defaults.dispatch_rate("Replicator"),
    ),
    Policy(
        field="clusterSubscribeRate",
        path="subscribeRate",
        kind=Kind.CLUSTER_MAP,
        broker_default=defaults.SUBSCRIBE_RATE,
    ),
    Policy(
        field="publishMaxMessageRate",
        path="publishRate",
        kind=Kind.CLUSTER_MAP,
        broker_default=defaults.PUBLISH_RATE,
    ),
    Policy(
        field="persistence",
        path="persistence",
        broker_default=defaults.PERSISTENCE,
    ),
    Policy(field="deduplicationEnabled", path="deduplication", broker_default="brokerDeduplicationEnabled"),
    Policy(
        field="deduplicationSnapshotIntervalSeconds",
        path="deduplicationSnapshotInterval",
        unset=Unset.EMPTY_POST,
        broker_default="brokerDeduplicationSnapshotIntervalSeconds",
    ),
    Policy(
        field="autoTopicCreationOverride",
        path="autoTopicCreation",
        broker_default=defaults.TOPIC_CREATION,
    ),
    Policy(
        field="autoSubscriptionCreationOverride",
        path="autoSubscriptionCreation",
        broker_default=defaults.SUBSCRIPTION_CREATION,
    ),
    Policy(
        field="delayed_delivery_policies",
        path="delayedDelivery",
        kind=Kind.DELAYED,
        broker_default=defaults.DELAYED_DELIVERY,
    ),
    Policy(field="max_producers_per_topic", path="maxProducersPerTopic", broker_default="maxProducersPerTopic"),
    Policy(field="max_consumers_per_topic", path="maxConsumersPerTopic", broker_default="maxConsumersPerTopic"),
    Policy(
        field="max_consumers_per_subscription",
        path="maxConsumersPerSubscription",
        broker_default="maxConsumersPerSubscription",
    ),
    Policy(
        field="max_unacked_messages_per_consumer",
        path="maxUnackedMessagesPerConsumer",
        broker_default="maxUnackedMessagesPerConsumer",
    ),
    Policy(
        field="max_unacked_messages_per_subscription",
        path="maxUnackedMessagesPerSubscription",
        broker_default="maxUnackedMessagesPerSubscription",
    ),
    Policy(
        field="max_subscriptions_per_topic",
        path="maxSubscriptionsPerTopic",
        broker_default="maxSubscriptionsPerTopic",
    ),
    Policy(field="max_topics_per_namespace", path="maxTopicsPerNamespace", broker_default="maxTopicsPerNamespace"),
    Policy(
        field="compaction_threshold",
        path="compactionThreshold",
        method="PUT",
        broker_default="brokerServiceCompactionThresholdInBytes",
    ),
    Policy(
        field="offload_policies",
        path="offloadPolicies",
        kind=Kind.OFFLOAD,
        unset_path="removeOffloadPolicies",
        secrets=OFFLOAD_SECRETS,
        broker_default=defaults.OFFLOAD,
    ),
    # Their setters write to `offload_policies` and not to these fields, so they can be set only at creation.
    Policy(field="offload_threshold", kind=Kind.AT_CREATION, default=-1),
    Policy(field="offload_threshold_in_seconds", kind=Kind.AT_CREATION, default=-1),
    Policy(field="offload_deletion_lag_ms", kind=Kind.AT_CREATION, default=-1),
    Policy(
        field="schema_compatibility_strategy",
        path="schemaCompatibilityStrategy",
        method="PUT",
        default="UNDEFINED",
        unset=Unset.DEFAULT,
        broker_default="schemaCompatibilityStrategy",
    ),
    Policy(
        field="schema_auto_update_compatibility_strategy",
        path="schemaAutoUpdateCompatibilityStrategy",
        method="PUT",
        unset=Unset.NULL,
    ),
    # The broker replaces an unset value by its default, so the document always has a value.
    Policy(
        field="is_allow_auto_update_schema",
        path="isAllowAutoUpdateSchema",
        unset=Unset.IMPOSSIBLE,
        broker_default="isAllowAutoUpdateSchemaEnabled",
    ),
    # A replicator is refused only where both are false; `true` and `false` in one call are answered 400 (5.0.1).
    Policy(
        field="is_allow_auto_update_schema_with_replicator",
        path="isAllowAutoUpdateSchema",
        in_query="allowAutoUpdateSchemaWithReplicator",
        unset=Unset.DEFAULT,
        default=True,
        after=("is_allow_auto_update_schema",),
        since="5.0",
    ),
    # `false` counts as set, so the broker's isSchemaValidationEnforced has no effect.
    Policy(field="schema_validation_enforced", path="schemaValidationEnforced", default=False, unset=Unset.DEFAULT),
    Policy(
        field="subscription_types_enabled",
        path="subscriptionTypesEnabled",
        kind=Kind.NAMES,
        broker_default="subscriptionTypesEnabled",
    ),
    Policy(
        field="allowed_topic_property_keys_for_metrics",
        path="allowedTopicPropertyKeysForMetrics",
        kind=Kind.NAMES,
        broker_default="allowedTopicPropertyKeysForMetrics",
        since="4.2",
    ),
    Policy(field="properties", path="properties", method="PUT", kind=Kind.PROPERTIES),
    Policy(field="resource_group_name", path="resourcegroup", in_path=True),
    Policy(
        field="dispatcherPauseOnAckStatePersistentEnabled",
        path="dispatcherPauseOnAckStatePersistent",
        kind=Kind.FLAG,
        broker_default="dispatcherPauseOnAckStatePersistentEnabled",
        since="4.0",
    ),
    Policy(
        field="entryFilters",
        path="entryFilters",
        broker_default=defaults.ENTRY_FILTERS,
        needs=("allowOverrideEntryFilters",),
    ),
    Policy(field="scalableTopicAutoScalePolicy", path="scalableTopicAutoScalePolicy", since="5.0"),
    Policy(field="bookie_affinity", path="persistence/bookieAffinity", kind=Kind.LOCAL, own=True),
    Policy(field="anti_affinity", path="antiAffinity", kind=Kind.LOCAL, own=True),
    Policy(field="latency_stats_sample_rate", kind=Kind.AT_CREATION),
    Policy(field="bundles", kind=Kind.AT_CREATION, own=True),
    # Never copied: the broker stores both as sent, so a namespace would be created as deleted or migrated.
    Policy(field="deleted", kind=Kind.INTERNAL),
    Policy(field="migrated", kind=Kind.INTERNAL, own=True, since="4.0"),
)


BY_FIELD: Mapping[str, Policy] = {policy.field: policy for policy in CATALOGUE}
LOCAL_FIELDS: tuple[Policy, ...] = tuple(policy for policy in CATALOGUE if policy.kind is Kind.LOCAL)
KEYED_BY_CLUSTER: tuple[str, ...] = tuple(policy.field for policy in CATALOGUE if policy.keyed_by_cluster)


def unknown_fields(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Fields that the catalogue does not have, from a newer broker; they are reported and never dropped."""
    return tuple(sorted(set(document) - set(BY_FIELD)))


def is_supported(since: str, version: str) -> bool:
    """Whether brokers of `version` have a policy that exists since Pulsar `since` (empty: always)."""
    return not since or version_numbers(version) >= version_numbers(since)
