"""Create a namespace so that the topic of its topic policies gets the source's shape (pure).

A broker makes that topic by itself when it first loads something of the namespace, in the shape that new topics get
there; where that is not the source's, brokers refuse to replicate the namespace later. So it is made behind the
namespace. A policy that makes new topics partitioned comes after it: a broker that loads the namespace meanwhile would
make both.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.call import Call, bare, with_body
from pulsar_fleet.cluster.effective import effective_of_namespace
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import POLICY_EVENTS, NamespaceName, TopicName
from pulsar_fleet.cluster.policies import BY_FIELD
from pulsar_fleet.cluster.policy_calls import creation_calls, policy_calls
from pulsar_fleet.cluster.states import SYSTEM_TOPIC, Snapshot

_NEW_TOPICS = BY_FIELD["autoTopicCreationOverride"]


def namespace_creation_calls(
    namespace: NamespaceName, document: JsonObject, source: Snapshot, target: Snapshot
) -> tuple[Call, ...]:
    """Create the namespace with all its policies, and the topic where the target would make it differently.

    Where the target's brokers make new topics partitioned by their own default, a plain one is left to them.
    """
    topic = TopicName(namespace, POLICY_EVENTS)
    shapes = {one.name: int(one.detail["partitions"]) for one in source.inventory if one.kind == SYSTEM_TOPIC}
    wanted = shapes.get(str(topic))
    brokers = [broker.configuration for broker in target.brokers] or [{}]
    override = document.get(_NEW_TOPICS.field)
    if wanted is None or {_partitions(override, one) for one in brokers} == {wanted}:
        return creation_calls(namespace, document)
    if wanted:
        creation, *settings = creation_calls(namespace, document)
        return (creation, with_body("PUT", f"/{topic.path}/partitions", wanted, createLocalTopicOnly="true"), *settings)
    if any(_partitions(None, one) for one in brokers):
        return creation_calls(namespace, document)
    rest = {field: value for field, value in document.items() if field != _NEW_TOPICS.field}
    creation, *settings = creation_calls(namespace, rest)
    return (creation, bare("PUT", f"/{topic.path}"), *policy_calls(_NEW_TOPICS, namespace, None, override), *settings)


def _partitions(override: Json, configuration: Mapping[str, Json]) -> int:
    """Of a topic that a broker makes by itself; 0 is a plain one."""
    found = effective_of_namespace(_NEW_TOPICS, override, configuration) or {}
    return int(found.get("defaultNumPartitions") or 1) if found.get("topicType") == "partitioned" else 0
