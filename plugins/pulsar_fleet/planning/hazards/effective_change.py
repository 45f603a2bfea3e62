"""Which values count before and after a change, where layers lie over one another (pure).

A retention that is set on a topic can lower what the namespace keeps, and one that is unset can fall to a broker's
default: what a change does to messages shows only in the values that are in force before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.effective import effective_of_namespace, effective_value
from pulsar_fleet.cluster.policies.lookup import BY_FIELD
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards.rules import Setting
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.snapshot.model import BrokerState

Documents = Mapping[str, JsonObject]
Configuration = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """Comparable documents of the target, before the plan and as it leaves them.

    :param brokers: every broker's configuration, with Pulsar's defaults for what it does not tell.
    :param namespaces: of `before`, by name.
    :param topics: of `before`, by topic and scope.
    """

    brokers: tuple[Configuration, ...]
    namespaces: Documents
    topics: Mapping[tuple[str, str], JsonObject]
    namespaces_after: Documents = field(default_factory=dict)
    topics_after: Mapping[tuple[str, str], JsonObject] = field(default_factory=dict)

    def settings(self, change: Change) -> Iterator[Setting]:
        """Every pair of values that may be in force before and after the change; others may be left out of the plan."""
        if change.resource is Resource.POLICY and change.field in BY_FIELD:
            policy = BY_FIELD[change.field]
            for broker in self.brokers:
                sides = [effective_of_namespace(policy, value, broker) for value in (change.before, change.after)]
                yield Setting(change.resource, change.field, *sides)
        elif change.resource is Resource.TOPIC_POLICY and change.field.partition("/")[2] in TOPIC_BY_FIELD:
            yield from self._of_topic(change)
        else:
            yield Setting(change.resource, change.field, change.before, change.after)

    def _of_topic(self, change: Change) -> Iterator[Setting]:
        scope, _, name = change.field.partition("/")
        policy = TOPIC_BY_FIELD[name]
        namespace = str(change.namespace)
        over: list[JsonObject] = [{}, {}]
        if scope != "global":
            over = [documents.get((change.name, "global"), {}) for documents in (self.topics, self.topics_after)]
        below = [documents.get(namespace, {}) for documents in (self.namespaces, self.namespaces_after)]

        def in_force(value: Json, wide: JsonObject, held: JsonObject, broker: Configuration) -> Json:
            local = {name: value}
            return effective_value(policy, local=local, shared=wide, namespace=held, configuration=broker).value

        for broker in self.brokers:
            before = in_force(change.before, over[0], below[0], broker)
            for wide in over:
                for held in below:
                    after = in_force(change.after, wide, held, broker)
                    yield Setting(change.resource, policy.namespace_field or name, before, after)


def configurations(brokers: Iterable[BrokerState]) -> tuple[Configuration, ...]:
    """What each broker does where nothing is set; Pulsar's own defaults stand for what a broker does not tell."""
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
NOTHING_KNOWN = InForce(brokers=(_KEEPS, _DISCARDS), namespaces={}, topics={})
"""Where nobody has looked at what is in force: brokers that keep everything and brokers that keep nothing."""
