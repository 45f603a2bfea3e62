"""Differences in subscriptions: of a topic where all partitions are alike, otherwise of single partitions (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.snapshot.model import Snapshot, SubscriptionState

SUBSCRIPTION_COLUMNS = ("replicated", "properties")
"""The columns that are compared; positions are not."""

ByPartition = Mapping[str, JsonObject]
"""Partition (or topic without partitions) → the subscription there in its comparable shape."""


def subscription_value(cursor: SubscriptionState) -> JsonObject:
    """A subscription of one topic or partition in its comparable shape."""
    return {column: getattr(cursor, column) for column in SUBSCRIPTION_COLUMNS}


def diff_subscriptions(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    """One difference for a subscription that is the same on all partitions of each side, or on none of them.

    Of any other subscription there is a difference for each partition that differs, under the partition's name.
    Subscriptions on partitions that only the target has are left out: the number of partitions is a difference itself.
    """
    counts = {topic.name: topic.partitions for topic in source.topics}
    ours, theirs = _by_subscription(source.subscriptions, counts), _by_subscription(target.subscriptions, counts)
    for topic, name in sorted({*ours, *theirs}):
        partitions = [str(partition) for partition in TopicName.parse(topic).partitions(counts[topic])]
        sides = [side.get((topic, name), {}) for side in (ours, theirs)]
        alike = all(_is_alike(partitions, side) for side in sides)
        for place in partitions[:1] if alike else partitions:
            values = [side.get(place) for side in sides]
            yield from _difference(topic if alike else place, name, *values)


def _by_subscription(
    cursors: Iterable[SubscriptionState], topics: Mapping[str, int]
) -> dict[tuple[str, str], dict[str, JsonObject]]:
    subscriptions: dict[tuple[str, str], dict[str, JsonObject]] = {}
    for cursor in cursors:
        if cursor.topic in topics:
            subscriptions.setdefault((cursor.topic, cursor.name), {})[cursor.partition] = subscription_value(cursor)
    return subscriptions


def _is_alike(partitions: Iterable[str], values: ByPartition) -> bool:
    """Whether all partitions have the same subscription, or none has it."""
    first, *others = (values.get(partition) for partition in partitions)
    return all(same(first, other) for other in others)


def _difference(topic: str, name: str, source: Json, target: Json) -> Iterator[Difference]:
    if same(source, target):
        return
    side = Side.MISSING if target is None else Side.EXTRA if source is None else Side.DIFFERENT
    yield Difference(Resource.SUBSCRIPTION, topic, name, side, source, target)
