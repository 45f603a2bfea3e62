"""The topic in which the policies of a namespace's topics lie, in the source's shape (pure).

A broker makes it by itself when it first loads something of the namespace, in the shape that new topics get there.
Where that is not the source's, brokers refuse to replicate the namespace later; so it is made behind the namespace.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.call import Call, bare, with_body
from pulsar_fleet.cluster.effective import effective_of_namespace
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import POLICY_EVENTS, NamespaceName, TopicName
from pulsar_fleet.cluster.policies import BY_FIELD
from pulsar_fleet.cluster.states import SYSTEM_TOPIC, Snapshot

_NEW_TOPICS = BY_FIELD["autoTopicCreationOverride"]


def policy_topic_calls(namespace: str, document: JsonObject, source: Snapshot, target: Snapshot) -> tuple[Call, ...]:
    """The call that creates it, where the source has one and the target's brokers would make it differently."""
    topic = TopicName(NamespaceName.parse(namespace), POLICY_EVENTS)
    shapes = {one.name: int(one.detail["partitions"]) for one in source.inventory if one.kind == SYSTEM_TOPIC}
    wanted = shapes.get(str(topic))
    configurations = [broker.configuration for broker in target.brokers] or [{}]
    if wanted is None or {_partitions(document, one) for one in configurations} == {wanted}:
        return ()
    if wanted == 0:
        return (bare("PUT", f"/{topic.path}"),)
    return (with_body("PUT", f"/{topic.path}/partitions", wanted, createLocalTopicOnly="true"),)


def _partitions(document: Mapping[str, Json], configuration: Mapping[str, Json]) -> int:
    """Of a topic that a broker makes in the namespace; 0 is a plain one."""
    found = effective_of_namespace(_NEW_TOPICS, document.get(_NEW_TOPICS.field), configuration) or {}
    return int(found.get("defaultNumPartitions") or 1) if found.get("topicType") == "partitioned" else 0
