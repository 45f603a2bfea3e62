"""The catalogue of namespace policies: one row per field of the broker's `Policies` document (pure).

Comparing, planning, setting, unsetting and translating derive from the rows, so adding a policy is adding a row.
Verbs, paths and what an unset field looks like were run against Pulsar 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.losses import deletes_inactive, evicts_backlog, lowered, shortened


class Kind(StrEnum):
    """How a field is read, compared and written."""

    VALUE = "value"
    NAMES = "names"
    """A list whose order means nothing."""
    FLAG = "flag"
    """Set by a call without a body; `false` and absent mean the same."""
    OFFLOAD = "offload"
    """The broker adds defaults and read-only fields to what was set."""
    QUOTAS = "quotas"
    """A map by quota type, one call per type."""
    GRANTS = "grants"
    """Rights of roles, one call per role."""
    PROPERTIES = "properties"
    """A map that the setter merges into; nothing is ever removed."""
    CLUSTER_LIST = "cluster list"
    """A list without the serving cluster's own name deletes that cluster's topics."""
    CLUSTER_MAP = "cluster map"
    """Keyed by cluster name; a setter writes the entry of the cluster that serves the call."""
    LOCAL = "local"
    """Kept by this cluster outside the document, with an address of its own."""
    AT_CREATION = "at creation"
    """Only taken when the namespace is created."""
    MIRROR = "mirror"
    """Written by the broker together with another field."""
    INTERNAL = "internal"
    """The broker's own state; never copied, never compared."""


class Unset(StrEnum):
    """How a field returns to "not set"."""

    DELETE = "delete"
    EMPTY_POST = "post without a body"
    NULL = "set to null"
    DEFAULT = "set to the default"
    IMPOSSIBLE = "cannot be unset"


Loses = Callable[[Json, Json], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one field of the document is set, unset, compared and judged.

    :param path: below `/namespaces/{tenant}/{namespace}/`; empty where no setter exists.
    :param method: of the setter.
    :param in_path: the value stands in the path instead of the body.
    :param unset_path: where unsetting has another path.
    :param default: what the document shows while the field is not set (absent, empty and null always mean that).
    :param loses: whether going from one value to another makes the broker discard stored messages or topics.
    :param since: first Pulsar version that knows it.
    """

    field: str
    path: str = ""
    method: str = "POST"
    unset: Unset = Unset.DELETE
    unset_path: str = ""
    kind: Kind = Kind.VALUE
    in_path: bool = False
    default: Json = None
    loses: Loses | None = None
    since: str = ""

    @property
    def comparable(self) -> bool:
        """Whether two clusters should agree on it."""
        return self.kind not in (Kind.INTERNAL, Kind.MIRROR)


# The order is the order of setting: `allowed_clusters` before `replication_clusters`, which must lie within it.
# Retention and backlog quota depend on the direction, see `setting_order`.
CATALOGUE: tuple[Policy, ...] = (
    Policy(field="allowed_clusters", path="allowedClusters", kind=Kind.CLUSTER_LIST, unset=Unset.IMPOSSIBLE),
    Policy(field="replication_clusters", path="replication", kind=Kind.CLUSTER_LIST, unset=Unset.IMPOSSIBLE),
    Policy(
        field="retention_policies",
        path="retention",
        loses=lowered("retentionTimeInMinutes", "retentionSizeInMB"),
    ),
    Policy(field="backlog_quota_map", path="backlogQuota", kind=Kind.QUOTAS, loses=evicts_backlog),
    Policy(field="message_ttl_in_seconds", path="messageTTL", loses=shortened),
    Policy(field="subscription_expiration_time_minutes", path="subscriptionExpirationTime", loses=shortened),
    Policy(field="inactive_topic_policies", path="inactiveTopicPolicies", loses=deletes_inactive),
    Policy(field="auth_policies", path="permissions", kind=Kind.GRANTS),
    Policy(field="subscription_auth_mode", path="subscriptionAuthMode", default="None", unset=Unset.DEFAULT),
    Policy(field="encryption_required", path="encryptionRequired", default=False, unset=Unset.DEFAULT),
    Policy(field="topicDispatchRate", path="dispatchRate", kind=Kind.CLUSTER_MAP),
    Policy(field="clusterDispatchRate", kind=Kind.MIRROR),
    Policy(field="subscriptionDispatchRate", path="subscriptionDispatchRate", kind=Kind.CLUSTER_MAP),
    Policy(field="replicatorDispatchRate", path="replicatorDispatchRate", kind=Kind.CLUSTER_MAP),
    Policy(field="clusterSubscribeRate", path="subscribeRate", kind=Kind.CLUSTER_MAP),
    Policy(field="publishMaxMessageRate", path="publishRate", kind=Kind.CLUSTER_MAP),
    Policy(field="persistence", path="persistence"),
    Policy(field="deduplicationEnabled", path="deduplication"),
    Policy(
        field="deduplicationSnapshotIntervalSeconds",
        path="deduplicationSnapshotInterval",
        unset=Unset.EMPTY_POST,
    ),
    Policy(field="autoTopicCreationOverride", path="autoTopicCreation"),
    Policy(field="autoSubscriptionCreationOverride", path="autoSubscriptionCreation"),
    Policy(field="delayed_delivery_policies", path="delayedDelivery"),
    Policy(field="max_producers_per_topic", path="maxProducersPerTopic"),
    Policy(field="max_consumers_per_topic", path="maxConsumersPerTopic"),
    Policy(field="max_consumers_per_subscription", path="maxConsumersPerSubscription"),
    Policy(field="max_unacked_messages_per_consumer", path="maxUnackedMessagesPerConsumer"),
    Policy(field="max_unacked_messages_per_subscription", path="maxUnackedMessagesPerSubscription"),
    Policy(field="max_subscriptions_per_topic", path="maxSubscriptionsPerTopic"),
    Policy(field="max_topics_per_namespace", path="maxTopicsPerNamespace"),
    Policy(field="compaction_threshold", path="compactionThreshold", method="PUT"),
    Policy(
        field="offload_policies",
        path="offloadPolicies",
        kind=Kind.OFFLOAD,
        unset_path="removeOffloadPolicies",
    ),
    # Their setters write into `offload_policies` and never into these fields, so they cannot be made equal later.
    Policy(field="offload_threshold", kind=Kind.AT_CREATION, default=-1),
    Policy(field="offload_threshold_in_seconds", kind=Kind.AT_CREATION, default=-1),
    Policy(field="offload_deletion_lag_ms", kind=Kind.AT_CREATION, default=-1),
    Policy(
        field="schema_compatibility_strategy",
        path="schemaCompatibilityStrategy",
        method="PUT",
        default="UNDEFINED",
        unset=Unset.DEFAULT,
    ),
    Policy(
        field="schema_auto_update_compatibility_strategy",
        path="schemaAutoUpdateCompatibilityStrategy",
        method="PUT",
        unset=Unset.NULL,
    ),
    # The broker fills in its own default when this is not set, so it never looks unset.
    Policy(field="is_allow_auto_update_schema", path="isAllowAutoUpdateSchema", unset=Unset.IMPOSSIBLE),
    Policy(field="schema_validation_enforced", path="schemaValidationEnforced", default=False, unset=Unset.DEFAULT),
    Policy(field="subscription_types_enabled", path="subscriptionTypesEnabled", kind=Kind.NAMES),
    Policy(
        field="allowed_topic_property_keys_for_metrics",
        path="allowedTopicPropertyKeysForMetrics",
        kind=Kind.NAMES,
        since="4.2",
    ),
    Policy(field="properties", path="properties", method="PUT", kind=Kind.PROPERTIES, unset=Unset.IMPOSSIBLE),
    Policy(field="resource_group_name", path="resourcegroup", in_path=True),
    Policy(
        field="dispatcherPauseOnAckStatePersistentEnabled",
        path="dispatcherPauseOnAckStatePersistent",
        kind=Kind.FLAG,
    ),
    Policy(field="entryFilters", path="entryFilters"),
    Policy(field="bookie_affinity", path="persistence/bookieAffinity", kind=Kind.LOCAL),
    Policy(field="anti_affinity", path="antiAffinity", kind=Kind.LOCAL),
    Policy(field="latency_stats_sample_rate", kind=Kind.AT_CREATION),
    Policy(field="bundles", kind=Kind.AT_CREATION),
    # A namespace could be born deleted, or with a false flag: the broker stores both as they come.
    Policy(field="deleted", kind=Kind.INTERNAL),
    Policy(field="migrated", kind=Kind.INTERNAL),
)

BY_FIELD: Mapping[str, Policy] = {policy.field: policy for policy in CATALOGUE}
LOCAL_FIELDS: tuple[Policy, ...] = tuple(policy for policy in CATALOGUE if policy.kind is Kind.LOCAL)

KEYED_BY_CLUSTER: tuple[str, ...] = (
    *(policy.field for policy in CATALOGUE if policy.kind is Kind.CLUSTER_MAP),
    "clusterDispatchRate",
    "latency_stats_sample_rate",
)


def unknown_fields(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Fields of a document that the catalogue does not have: a newer broker's; they are shown and never dropped."""
    return tuple(sorted(set(document) - set(BY_FIELD)))


def setting_order(fields: Mapping[str, tuple[Json, Json]]) -> tuple[str, ...]:
    """The order in which to set fields (field → before and after), so that the broker takes every one.

    It refuses a retention below the backlog quota: widening sets retention first, narrowing sets the quota first.
    """
    ordered = [policy.field for policy in CATALOGUE if policy.field in fields]
    pair = ("retention_policies", "backlog_quota_map")
    if all(field in fields for field in pair):
        before, after = fields["retention_policies"]
        if lowered("retentionTimeInMinutes", "retentionSizeInMB")(before, after):
            first, second = (ordered.index(field) for field in pair)
            ordered[first], ordered[second] = ordered[second], ordered[first]
    return tuple(ordered)
