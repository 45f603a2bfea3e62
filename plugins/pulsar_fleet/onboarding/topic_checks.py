"""Topics that stand in the way of an equal target (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.change.findings import Finding
from pulsar_fleet.change.topic_changes import SHADOW_SOURCE
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.states import TopicState
from pulsar_fleet.onboarding.pair import Pair, blocker, warning


def topics_have_the_same_shape(pair: Pair) -> Iterator[Finding]:
    """Partition counts must agree, and a name must not be a plain topic here and a partitioned one there."""
    held = {topic.name: topic for topic in pair.target.topics}
    for topic in pair.source.topics:
        other = held.get(topic.name)
        if other is None or other.partitions == topic.partitions:
            continue
        if 0 in (topic.partitions, other.partitions):
            yield blocker(
                "partitioned-on-one-side",
                topic.name,
                pair.values(_shape(topic), _shape(other)),
                "Replication between the two never starts, and clients that move find another kind of topic.",
                "delete the one on the target if it holds nothing, or rename it.",
            )
        elif topic.partitions > other.partitions:
            yield warning(
                "partitions-grow",
                topic.name,
                pair.values(topic.partitions, other.partitions),
                "Replication of the new partitions would never start as it is; growing moves keys to other partitions.",
                f"allow the plan's change that grows {pair.target.cluster}, while no ordered consumer runs there.",
            )
        else:
            yield blocker(
                "partitions-differ",
                topic.name,
                pair.values(topic.partitions, other.partitions),
                "Replication between the two never starts, and producers that move would lose the order of keys.",
                f"grow {pair.source.cluster} to {other.partitions} and take the snapshots again: none can be removed.",
            )


def names_do_not_clash(pair: Pair) -> Iterator[Finding]:
    """`x-partition-0` is a partition of `x` to a broker, whatever else it was meant to be."""
    for side, other in ((pair.source, pair.target), (pair.target, pair.source)):
        parents = {topic.name for topic in other.topics if topic.partitions}
        for topic in side.topics:
            name = TopicName.parse(topic.name)
            if topic.partitions or name.partition_index is None:
                continue
            clash = str(name.parent) in parents
            yield (blocker if clash else warning)(
                "named-like-a-partition",
                topic.name,
                f"a single topic on {side.cluster}" + (f", {name.parent} is partitioned on {other.cluster}" * clash),
                "Brokers take it for a partition of another topic; from 4.1 they refuse to create it.",
                f"move its clients to another name on {side.cluster} and delete it.",
            )


def special_topics_are_told(pair: Pair) -> Iterator[Finding]:
    """Topics whose state a copy does not carry."""
    for topic in pair.source.topics:
        if topic.terminated:
            yield warning(
                "topic-terminated",
                topic.name,
                f"terminated on {pair.source.cluster}",
                f"On {pair.target.cluster} it is created open, so producers could write to it.",
                "terminate it there after its messages were copied.",
            )
        if SHADOW_SOURCE in topic.properties:
            yield warning(
                "shadow-topic",
                topic.name,
                f"shadow of {topic.properties[SHADOW_SOURCE]}",
                "It is left out: a shadow shares the ledgers of a topic of its own cluster.",
                "nothing, if it need not be served there.",
            )


def _shape(topic: TopicState) -> str:
    return f"{topic.partitions} partitions" if topic.partitions else "not partitioned"
