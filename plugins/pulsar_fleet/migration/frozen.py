"""How blue was before a migration held it still: enough to restore it exactly (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName

DELETION = "brokerDeleteInactiveTopicsEnabled"
"""Pattern consumers lose their topics on green when blue deletes them (observed), so it stays off after the switch."""

FROZEN_SETTINGS: Mapping[str, str] = {
    # An unloaded topic of a flagged namespace cannot be loaded again: nothing may move while it drains.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
    DELETION: "false",
}
REPLICATION_START = ("replicationStartAt", "earliest")

_NEVER_INACTIVE: JsonObject = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 3600,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What the migration overrides on blue, as it was.

    :param dynamic: setting → its override, None where there was none (then it is removed again, not set).
    :param effective: broker → setting → the value in force there; each broker has a configuration file of its own.
    :param publish_rates: namespace → its publish rate, None where there was none.
    :param replication: namespace → its `replication_clusters`.
    :param inactive: namespace → its inactive-topic policies, None where there were none.
    :param topic_rates: topic with a publish rate of its own → the local one, None where only a global one is set.
    :param topic_inactive: topic with inactive-topic policies of its own → the local ones, None as above.
    """

    dynamic: Mapping[str, str | None]
    publish_rates: Mapping[str, JsonObject | None]
    replication: Mapping[str, list[str]]
    effective: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"schema_version": 2, **asdict(self)}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{key: value for key, value in found.items() if key != "schema_version"})

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """Those whose overrides it remembers."""
        return tuple(NamespaceName.parse(text) for text in self.publish_rates)

    def own_rates(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have a publish rate of their own."""
        return _within(self.topic_rates, namespace)

    def own_inactive(self, namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
        """Topics of a namespace that have inactive-topic policies of their own."""
        return _within(self.topic_inactive, namespace)


def quiet_rate(before: Json) -> JsonObject:
    """A publish rate of 1 message/s, with the limit on bytes that was there: at 5 and 10 consumers died (observed)."""
    bytes_ = int((before or {}).get("publishThrottlingRateInByte") or -1)
    return {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": bytes_ if bytes_ > 0 else -1}


def never_deleting(before: Json) -> JsonObject:
    """Inactive-topic policies like these, which delete nothing."""
    return {**(before or _NEVER_INACTIVE), "deleteWhileInactive": False}


def _within(topics: Mapping[str, JsonObject | None], namespace: NamespaceName) -> dict[TopicName, JsonObject | None]:
    named = {TopicName.parse(text): value for text, value in topics.items()}
    return {topic: value for topic, value in named.items() if topic.namespace == namespace}
