"""The catalogue of topic policies: one row per policy of the documents in `__change_events` (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from pulsar_fleet.cluster.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.losses import deletes_inactive, evicts_backlog, lowered, shortened
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies import Loses
from pulsar_fleet.cluster.policy_calls import quota_calls
from pulsar_fleet.cluster.policy_documents import offload, quotas, translate_clusters


class Scope(StrEnum):
    """A topic has two documents: for this cluster, and for all clusters of its namespace."""

    LOCAL = "local"
    GLOBAL = "global"


class Form(StrEnum):
    """How a topic policy is read and written."""

    VALUE = "value"
    NAMES = "names"
    FLAG = "flag"
    QUOTAS = "quotas"
    OFFLOAD = "offload"
    DELAYED = "delayed delivery"
    PER_SUBSCRIPTION = "per subscription"
    CLUSTER_LIST = "cluster list"
    IN_QUERY = "in query"
    ELSEWHERE = "elsewhere"
    """Owned by another procedure, or the document's own state; never copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """How one topic policy is set, unset and compared.

    :param path: below the topic; `isGlobal` in the query chooses the document.
    :param can_unset: there is a call to unset it; else `false` has to stand for that.
    :param local_only: the broker ignores `isGlobal` for it and writes the local document.
    """

    field: str
    path: str = ""
    method: str = "POST"
    form: Form = Form.VALUE
    local_only: bool = False
    can_unset: bool = True
    loses: Loses | None = None
    since: str = ""


# In the order of setting; retention stands before the quota that must lie below it.
TOPIC_CATALOGUE: tuple[TopicPolicy, ...] = (
    TopicPolicy(
        field="retentionPolicies", path="retention", loses=lowered("retentionTimeInMinutes", "retentionSizeInMB")
    ),
    TopicPolicy(field="backLogQuotaMap", path="backlogQuota", form=Form.QUOTAS, loses=evicts_backlog),
    TopicPolicy(field="messageTTLInSeconds", path="messageTTL", form=Form.IN_QUERY, loses=shortened),
    TopicPolicy(
        field="subscriptionExpirationTimeInMinutes",
        path="subscriptionExpirationTime",
        form=Form.IN_QUERY,
        loses=shortened,
        since="4.2",
    ),
    TopicPolicy(field="inactiveTopicPolicies", path="inactiveTopicPolicies", loses=deletes_inactive),
    TopicPolicy(field="subscriptionTypesEnabled", path="subscriptionTypesEnabled", form=Form.NAMES),
    TopicPolicy(field="replicationClusters", path="replication", form=Form.CLUSTER_LIST),
    TopicPolicy(field="persistence", path="persistence"),
    TopicPolicy(field="deduplicationEnabled", path="deduplicationEnabled"),
    TopicPolicy(field="deduplicationSnapshotIntervalSeconds", path="deduplicationSnapshotInterval"),
    TopicPolicy(field="maxProducerPerTopic", path="maxProducers"),
    TopicPolicy(field="maxConsumerPerTopic", path="maxConsumers"),
    TopicPolicy(field="maxConsumersPerSubscription", path="maxConsumersPerSubscription"),
    TopicPolicy(field="maxUnackedMessagesOnConsumer", path="maxUnackedMessagesOnConsumer"),
    TopicPolicy(field="maxUnackedMessagesOnSubscription", path="maxUnackedMessagesOnSubscription"),
    TopicPolicy(field="maxMessageSize", path="maxMessageSize"),
    TopicPolicy(field="maxSubscriptionsPerTopic", path="maxSubscriptionsPerTopic"),
    TopicPolicy(field="delayedDelivery", path="delayedDelivery", form=Form.DELAYED),
    TopicPolicy(
        field="dispatcherPauseOnAckStatePersistentEnabled",
        path="dispatcherPauseOnAckStatePersistent",
        form=Form.FLAG,
    ),
    TopicPolicy(field="offloadPolicies", path="offloadPolicies", form=Form.OFFLOAD),
    TopicPolicy(field="dispatchRate", path="dispatchRate"),
    TopicPolicy(field="subscriptionDispatchRate", path="subscriptionDispatchRate"),
    TopicPolicy(field="replicatorDispatchRate", path="replicatorDispatchRate"),
    TopicPolicy(field="subscriptionPolicies", path="dispatchRate", form=Form.PER_SUBSCRIPTION),
    TopicPolicy(field="publishRate", path="publishRate"),
    TopicPolicy(field="subscribeRate", path="subscribeRate"),
    TopicPolicy(field="compactionThreshold", path="compactionThreshold"),
    TopicPolicy(field="entryFilters", path="entryFilters"),
    TopicPolicy(field="autoSubscriptionCreationOverride", path="autoSubscriptionCreation"),
    TopicPolicy(field="schemaCompatibilityStrategy", path="schemaCompatibilityStrategy", method="PUT", local_only=True),
    TopicPolicy(field="schemaValidationEnforced", path="schemaValidationEnforced", local_only=True, can_unset=False),
    TopicPolicy(field="shadowTopics", form=Form.ELSEWHERE),
    TopicPolicy(field="isGlobal", form=Form.ELSEWHERE),
)

TOPIC_BY_FIELD: Mapping[str, TopicPolicy] = {policy.field: policy for policy in TOPIC_CATALOGUE}
_DELAYED_FIELDS = {
    "delayedDeliveryEnabled": "active",
    "delayedDeliveryTickTimeMillis": "tickTime",
    "delayedDeliveryMaxDelayInMillis": "maxDeliveryDelayInMillis",
}


def unknown_topic_fields(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Fields that the catalogue does not have: a newer broker's; they are shown and never dropped."""
    return tuple(sorted(set(document) - set(TOPIC_BY_FIELD) - set(_DELAYED_FIELDS)))


def translate_topic_policies(
    document: Mapping[str, Json], source: str, target: str, known: Collection[str] | None = None
) -> JsonObject:
    """A topic's policies in `target`'s terms: its cluster list is renamed like a namespace's."""
    result = dict(document)
    if result.get("replicationClusters"):
        result["replicationClusters"], _ = translate_clusters(result["replicationClusters"], source, target, known)
    return result


def topic_comparable(document: Mapping[str, Json]) -> dict[str, Json]:
    """The policies that are set, by field, in one shape; unknown fields are kept."""
    found = {policy.field: _normal(policy, document) for policy in TOPIC_CATALOGUE}
    found |= {field: document[field] for field in unknown_topic_fields(document)}
    return {field: value for field, value in found.items() if value not in (None, [], {})}


def topic_policy_calls(
    policy: TopicPolicy, topic: TopicName, scope: Scope, before: Json, after: Json
) -> tuple[Call, ...]:
    """From `before` to `after` (comparable values, None is unset)."""
    path = f"/{topic.path}/{policy.path}"
    scoped = {"isGlobal": "true"} if scope is Scope.GLOBAL else {}
    if policy.form is Form.QUOTAS:
        calls = quota_calls(path, before or {}, after or {})
        return tuple(
            Call(one.method, one.path, (*one.params, *scoped.items()), one.body, one.has_body) for one in calls
        )
    if policy.form is Form.PER_SUBSCRIPTION:
        return _subscription_calls(topic, scoped, before or {}, after or {})
    if after is None:
        return (bare("DELETE", path, **scoped) if policy.can_unset else with_body(policy.method, path, False),)
    if policy.form is Form.IN_QUERY:
        return (bare(policy.method, path, **{policy.path: str(after)}, **scoped),)
    if policy.form is Form.FLAG:
        return (bare(policy.method, path, **scoped),)
    return (with_body(policy.method, path, after, **scoped),)


def _subscription_calls(
    topic: TopicName, scoped: Mapping[str, str], before: JsonObject, after: JsonObject
) -> tuple[Call, ...]:
    """Dispatch rates of single subscriptions, one call for each that differs."""
    calls = []
    for name in sorted({*before, *after}):
        path = f"/{topic.path}/{quote(name, safe='')}/dispatchRate"
        rate = after.get(name, {}).get("dispatchRate")
        if before.get(name) == after.get(name):
            continue
        calls.append(with_body("POST", path, rate, **scoped) if rate else bare("DELETE", path, **scoped))
    return tuple(calls)


def _normal(policy: TopicPolicy, document: Mapping[str, Json]) -> Json:
    value = _pruned(document.get(policy.field))
    match policy.form:
        case Form.ELSEWHERE:
            return None
        case Form.DELAYED:
            return _delayed(document)
        case Form.NAMES | Form.CLUSTER_LIST:
            return sorted(value or ())
        case Form.QUOTAS:
            return quotas(value)
        case Form.OFFLOAD:
            return offload(value)
        case Form.FLAG:
            return value or None
        case Form.PER_SUBSCRIPTION:
            return {name: one for name, one in (value or {}).items() if one}
    if policy.field == "schemaValidationEnforced":
        return value or None
    return None if policy.field == "schemaCompatibilityStrategy" and value == "UNDEFINED" else value


def _delayed(document: Mapping[str, Json]) -> Json:
    found = {name: document.get(field) for field, name in _DELAYED_FIELDS.items()}
    return {name: value for name, value in found.items() if value is not None}


def _pruned(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _pruned(one) for key, one in value.items() if one is not None}
    return value
