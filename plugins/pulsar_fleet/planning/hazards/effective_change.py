"""Which values are effective before and after a change, when topic, namespace and broker define them (pure).

A topic's retention can be shorter than the namespace's, and an unset one falls back to the broker's default: only the
effective values before and after a change show what it does to messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.effective import effective_of_namespace, effective_value
from pulsar_fleet.cluster.policies.model import TopicPolicyField
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards.rules import ValueChange
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.snapshot.model import BrokerState

Documents = Mapping[str, JsonObject]
Configuration = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveValues:
    """Comparable documents of the target, before and after the plan.

    :param brokers: every broker's configuration, with Pulsar's defaults for settings that it does not report.
    :param namespaces: before the plan, by name.
    :param topics: before the plan, by topic and scope.
    """

    brokers: tuple[Configuration, ...]
    namespaces: Documents
    topics: Mapping[tuple[str, str], JsonObject]
    namespaces_after: Documents = field(default_factory=dict)
    topics_after: Mapping[tuple[str, str], JsonObject] = field(default_factory=dict)

    def changes(self, change: Change) -> Iterator[ValueChange]:
        """Every pair of values that may be effective before and after: a part of the plan may not be applied."""
        if change.resource is Resource.POLICY and change.field in BY_FIELD:
            policy = BY_FIELD[change.field]
            for broker in self.brokers:
                sides = [effective_of_namespace(policy, value, broker) for value in (change.before, change.after)]
                yield ValueChange(change.resource, change.field, *sides)
        elif change.resource is Resource.TOPIC_POLICY and TopicPolicyField.parse(change.field).policy in TOPIC_BY_FIELD:
            yield from self._of_topic(change)
        else:
            yield ValueChange(change.resource, change.field, change.before, change.after)

    def _of_topic(self, change: Change) -> Iterator[ValueChange]:
        path = TopicPolicyField.parse(change.field)
        policy = TOPIC_BY_FIELD[path.policy]
        namespace = str(change.namespace)
        global_documents: list[JsonObject] = [{}, {}]
        if path.scope is not Scope.GLOBAL:
            global_documents = [topics.get((change.name, "global"), {}) for topics in (self.topics, self.topics_after)]
        documents = [namespaces.get(namespace, {}) for namespaces in (self.namespaces, self.namespaces_after)]

        def effective(value: Json, shared: JsonObject, document: JsonObject, broker: Configuration) -> Json:
            local = {path.policy: value}
            return effective_value(policy, local=local, shared=shared, namespace=document, configuration=broker)

        for broker in self.brokers:
            before = effective(change.before, global_documents[0], documents[0], broker)
            for shared in global_documents:
                for document in documents:
                    after = effective(change.after, shared, document, broker)
                    yield ValueChange(change.resource, policy.namespace_field or path.policy, before, after)


def configurations(brokers: Iterable[BrokerState]) -> tuple[Configuration, ...]:
    """What each broker does where no policy is set; Pulsar's defaults replace settings that it does not report."""
    return tuple({**_PULSAR, **broker.configuration} for broker in brokers) or (_PULSAR,)


_PULSAR: Configuration = {
    "defaultRetentionTimeInMinutes": "0",
    "defaultRetentionSizeInMB": "0",
    "ttlDurationDefaultInSeconds": "0",
    "subscriptionExpirationTimeMinutes": "0",
    "brokerDeleteInactiveTopicsEnabled": "true",
    "backlogQuotaDefaultLimitBytes": "-1",
    "backlogQuotaDefaultLimitSecond": "-1",
    "backlogQuotaDefaultRetentionPolicy": "producer_request_hold",
}
_KEEPS: Configuration = {
    **_PULSAR,
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
_DISCARDS: Configuration = {
    **_PULSAR,
    "ttlDurationDefaultInSeconds": "1",
    "subscriptionExpirationTimeMinutes": "1",
    "backlogQuotaDefaultLimitBytes": "1",
    "backlogQuotaDefaultLimitSecond": "1",
    "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
}
UNKNOWN_SETTINGS = EffectiveValues(brokers=(_KEEPS, _DISCARDS), namespaces={}, topics={})
"""For unknown effective values: one broker that keeps every message and one that keeps none."""
