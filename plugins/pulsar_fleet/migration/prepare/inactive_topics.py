"""Create again what a broker's deletion of inactive topics removes while a migration runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, Unavailable
from pulsar_fleet.cluster.names import NamespaceName, TopicName, own_topic_properties
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY

log = logging.getLogger(__name__)


async def recreate_missing(
    admin: AdminClient, namespace: NamespaceName, topics: Mapping[TopicName, int], other: AdminClient
) -> tuple[TopicName, ...]:
    """Create the topics and partitions that a cluster lacks, empty; returns the topics that lacked something.

    A topic without subscriptions, producers and kept messages is deleted after a minute by default; of a partitioned
    topic the partitions are deleted, and the topic stays. A namespace that is flagged needs every partition to be
    loaded before. Two calls, and one or two for each topic that lacks something; a second call creates nothing.

    :param topics: topic → partition count, 0 for a plain topic.
    :param other: the other cluster, whose properties a topic gets.
    """
    existing = await _existing(admin, namespace)
    incomplete = _incomplete(topics, existing)
    for topic in incomplete:
        await _create(admin, topic, topics[topic], other, exists=topic in existing)
    if incomplete:
        log.info("%s: %d inactive topics created again, first %s", namespace, len(incomplete), incomplete[0])
    return incomplete


async def missing_topics(
    admin: AdminClient, namespace: NamespaceName, topics: Mapping[TopicName, int]
) -> tuple[TopicName, ...]:
    """Those of the topics that a cluster lacks, or lacks a partition of; two calls."""
    return _incomplete(topics, await _existing(admin, namespace))


async def _existing(admin: AdminClient, namespace: NamespaceName) -> frozenset[TopicName]:
    return frozenset().union(*await asyncio.gather(admin.topics(namespace), admin.partitioned_topics(namespace)))


def _incomplete(topics: Mapping[TopicName, int], existing: Collection[TopicName]) -> tuple[TopicName, ...]:
    return tuple(
        topic
        for topic, count in topics.items()
        if topic.persistent and not {topic, *topic.partitions(count)}.issubset(existing)
    )


async def keep_unused(admin: AdminClient, topics: Iterable[TopicName]) -> None:
    """Load empty topics without subscriptions and clients again: they count as inactive a minute later at the earliest.

    So none is deleted between the last look at it and the arrival of its producers, which would make it again without
    its policies. One call for each topic or partition, three for each that is unused.
    """

    async def keep(topic: TopicName) -> None:
        stats = await admin.stats(topic, precise=False)
        if not (stats.get("subscriptions") or stats.get("publishers") or stats.get("storageSize")):
            await admin.put(f"/{topic.path}/unload")
            await admin.stats(topic, precise=False)

    await asyncio.gather(*(keep(topic) for topic in topics if topic.persistent))


async def _create(admin: AdminClient, topic: TopicName, count: int, other: AdminClient, *, exists: bool) -> None:
    if exists:
        await admin.create_missing_partitions(topic)
        return
    try:
        if count:
            properties = (await other.partition_metadata(topic)).properties
        else:
            info = await other.internal_info(topic, answered_retry_seconds=0)
            properties = own_topic_properties(info.get("properties"))
            properties.pop(MIGRATED_PROPERTY, None)
    except (NotFound, Unavailable):
        # The broker answers 500 for a topic that does not exist: no cluster has its properties any more.
        properties = {}
    if count:
        await admin.create_partitioned_topic(topic, count, properties)
    else:
        await admin.create_topic(topic, properties)
