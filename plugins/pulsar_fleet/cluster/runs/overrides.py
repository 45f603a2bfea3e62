"""What a run overrides in a namespace, recorded in a property of the namespace with the original values (pure).

So every procedure recognises an override, whatever ledger its run has: it is never copied or compared, and never
becomes an original value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject

PROPERTY = "pulsar-fleet.overrides"
"""The namespace property that holds the record."""

QUIESCED_RATE: JsonObject = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": 1}
"""The first publish of each producer passes, and none after it: a publish of n bytes puts the topic n - 1 seconds into
debt. By messages alone, one that is not batched passes each second, and may be under way at the termination."""

_NEVER_REACHED = 1_000_003
"""Messages a second: by this limit, which nobody else sets, a throttle of bytes is recognised as ours."""

_HELD_SECONDS = 86_400
HELD_REPLICATION: JsonObject = {
    "dispatchThrottlingRateInMsg": 1,
    "dispatchThrottlingRateInByte": 1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": _HELD_SECONDS,
}
"""A replicator sends what it has read, and then nothing for a day: within half a second its cursor stands still behind
the last entry that the other cluster has stored (observed, 3.0.7 to 5.0.1)."""

FROZEN_SETTINGS: Mapping[str, str] = {
    # An unloaded topic of a flagged namespace cannot be loaded again: no bundle may move during the drain.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerAutoUnloadSplitBundlesEnabled": "false",
}
"""Dynamic settings of the brokers that are overridden: no policy of a namespace does the same."""

_NEVER_INACTIVE: JsonObject = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 3600,
}


def never_deleting(policies: Json) -> JsonObject:
    """These inactive-topic policies, changed so that they delete nothing."""
    return {**(policies or _NEVER_INACTIVE), "deleteWhileInactive": False}


def byte_throttle(bytes_per_second: int) -> JsonObject:
    """A publish rate that holds the next publish of a topic for as many seconds as the last one has bytes / rate."""
    return {"publishThrottlingRateInMsg": _NEVER_REACHED, "publishThrottlingRateInByte": bytes_per_second}


def is_throttle(rate: Json) -> bool:
    """Whether a run has set this publish rate so that producers wait."""
    return rate == QUIESCED_RATE or (rate or {}).get("publishThrottlingRateInMsg") == _NEVER_REACHED


def is_held(rate: Json) -> bool:
    """Whether a run has set this dispatch rate so that replicators stand still."""
    return all(
        (rate or {}).get(key) == HELD_REPLICATION[key] for key in ("dispatchThrottlingRateInMsg", "ratePeriodInSecond")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceOverrides(Document):
    """What a run overrides in a namespace: the values before, None where there was none.

    Every function that gives an original value replaces only values that equal the override: a value that somebody else
    has set since stays.

    :param cluster: the cluster on which they are overridden.
    :param replicates_to: the cluster that the run adds to the replication clusters.
    :param allowed: the clusters that the tenant allows; None in the records of earlier releases.
    :param topic_rates: topic with its own publish rate → the local rate, None where only a global rate is set.
    :param topic_inactive: topic with its own inactive-topic policies → the local policies, None as above.
    :param topic_replication: topic with its own list of clusters, local or global, without `replicates_to` → the list.
    :param holds_replication: the run holds what this cluster replicates: the two below are its originals.
    :param replicator_rate: the dispatch rate of replicators.
    :param topic_replicator_rates: topic with its own of these → the local rate, None where only a global one is set.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "use the release that wrote it"

    run: str
    since: str
    cluster: str
    replicates_to: str
    publish_rate: JsonObject | None
    inactive: JsonObject | None
    replication: list[str]
    allowed: list[str] | None = None
    topic_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_inactive: Mapping[str, JsonObject | None] = field(default_factory=dict)
    topic_replication: Mapping[str, list[str]] = field(default_factory=dict)
    holds_replication: bool = False
    replicator_rate: JsonObject | None = None
    topic_replicator_rates: Mapping[str, JsonObject | None] = field(default_factory=dict)

    def original_policies(self, document: JsonObject) -> JsonObject:
        """The policies document of the namespace without the overrides."""
        rates = dict(document.get("publishMaxMessageRate") or {})
        rates[self.cluster] = _original_rate(rates.get(self.cluster), self.publish_rate)
        own = document.get("inactive_topic_policies")
        clusters = self._original_list(document.get("replication_clusters") or [], self.replication)
        dispatch = dict(document.get("replicatorDispatchRate") or {})
        if self.holds_replication and is_held(dispatch.get(self.cluster)):
            dispatch[self.cluster] = self.replicator_rate
            document = {
                **document,
                "replicatorDispatchRate": {cluster: rate for cluster, rate in dispatch.items() if rate is not None},
            }
        return {
            **document,
            "publishMaxMessageRate": {cluster: rate for cluster, rate in rates.items() if rate is not None},
            "inactive_topic_policies": original_value(own, self.inactive, never_deleting(self.inactive)),
            "replication_clusters": clusters,
        }

    def original_clusters(self, allowed: Sequence[str]) -> Sequence[str]:
        """The clusters that the tenant allows, without the one that the run added."""
        return allowed if self.allowed is None else without_added(allowed, self.replicates_to, self.allowed)

    def original_topic_policies(self, topic: str, document: JsonObject) -> JsonObject:
        """The local policies of a topic without the overrides."""
        original = dict(document)
        if topic in self.topic_rates and "publishRate" in document:
            original["publishRate"] = _original_rate(document["publishRate"], self.topic_rates[topic])
        if topic in self.topic_replicator_rates and is_held(document.get("replicatorDispatchRate")):
            original["replicatorDispatchRate"] = self.topic_replicator_rates[topic]
        if topic in self.topic_inactive and "inactiveTopicPolicies" in document:
            own, value = self.topic_inactive[topic], document["inactiveTopicPolicies"]
            original["inactiveTopicPolicies"] = original_value(value, own, never_deleting(own))
        if topic in self.topic_replication and (clusters := document.get("replicationClusters")):
            original["replicationClusters"] = self._original_list(clusters, self.topic_replication[topic])
        return original

    def _original_list(self, clusters: list[str], original: list[str]) -> list[str]:
        return original if {*clusters} == {*original, self.cluster, self.replicates_to} else clusters


def _original_rate(rate: Json, original: Json) -> Json:
    return original if is_throttle(rate) else rate


def without_added(clusters: Sequence[str], added: str, original: Sequence[str]) -> Sequence[str]:
    """Clusters without the one that a run added, unless it was among the original ones."""
    return clusters if added in original else [cluster for cluster in clusters if cluster != added]


def original_value(value: Json, original: Json, override: Json) -> Json:
    """The original for a value that is overridden; any other value itself."""
    return original if value == override else value


def overrides_in(document: Mapping[str, Json]) -> NamespaceOverrides | None:
    """The record in a policies document; None without one.

    :raises PreconditionFailed: the record cannot be read, so that nobody knows which values are original.
    """
    text = (document.get("properties") or {}).get(PROPERTY)
    if text is None:
        return None
    try:
        return NamespaceOverrides.from_json(json.loads(text))
    except (ValueError, FleetError) as error:
        raise PreconditionFailed(
            f"The namespace's property {PROPERTY} cannot be read: {error} It says which policies a run overrides. "
            "Use the release of pulsar-fleet that wrote it; do not delete it before those policies are restored."
        ) from error


def own_overrides(document: Mapping[str, Json], cluster: str) -> NamespaceOverrides | None:
    """As `overrides_in`, of what is overridden on this cluster, by its own name.

    Another cluster with the same configuration store shows the record too: there nothing is overridden by it.
    """
    record = overrides_in(document)
    return record if record and record.cluster == cluster else None


def without_overrides(document: JsonObject) -> JsonObject:
    """A policies document with its original values; the record stays in it, so that readers know of it."""
    overrides = overrides_in(document)
    return overrides.original_policies(document) if overrides else document
