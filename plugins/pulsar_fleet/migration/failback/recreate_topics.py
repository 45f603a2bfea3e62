"""Leftovers of a migration on blue: read without loading a topic, and recreated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.cleanup import remove_topic
from pulsar_fleet.migration.failback.checks import LeftoverTopic
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY, SubscriptionState
from pulsar_fleet.snapshot.resources import read_info, read_partition_counts, subscriptions_in_info

log = logging.getLogger(__name__)


async def leftover_topics(blue: AdminClient, namespace: NamespaceName) -> tuple[LeftoverTopic, ...]:
    """Every topic of the namespace on blue; a flagged topic that is not loaded has no clients and stays unloaded."""
    topics, existing = await read_partition_counts(blue, namespace), await blue.topics(namespace)
    return tuple(await asyncio.gather(*(_leftover(blue, topic, count, existing) for topic, count in topics.items())))


async def recreate_topic(
    blue: AdminClient, leftover: LeftoverTopic, topics: Mapping[TopicName, int], green: AdminClient
) -> bool:
    """Remove a terminated topic and create it empty, with the partitions and properties that it has on green.

    A topic that an earlier attempt recreated is not changed; one that green does not have is only removed. The
    namespace must not be flagged: a flagged one accepts no new topics. True if the topic was removed.

    :raises PreconditionFailed: it has clients, or a client has created it with another partition count.
    """
    if leftover.terminated:
        await remove_topic(blue, leftover.topic, leftover.partitions)
        log.info("%s: terminated topic removed, with %d entries", leftover.topic, leftover.entries)
    if leftover.topic in topics:
        await create_topic_like(blue, leftover.topic, topics[leftover.topic], green)
    return leftover.terminated


async def create_topic_like(blue: AdminClient, topic: TopicName, count: int, green: AdminClient) -> None:
    """Create a topic as it is on green, unless it exists."""
    if count:
        stored = (await green.partition_metadata(topic)).properties
        properties = {key: value for key, value in stored.items() if key != MIGRATED_PROPERTY}
        await blue.create_partitioned_topic(topic, count, properties)
    elif topic not in await blue.topics(topic.namespace):
        await blue.create_topic(topic)
    created = (await blue.partition_metadata(topic)).partitions
    if created != count:
        raise PreconditionFailed(
            f"{topic} has {created or 'no'} partitions on {blue.connection.name} and {count or 'none'} on "
            f"{green.connection.name}: a client created it in between. Stop that client; if the topic's statistics "
            "show no "
            "message, delete it there, then run again."
        )


async def _leftover(blue: AdminClient, topic: TopicName, count: int, existing: Collection[TopicName]) -> LeftoverTopic:
    info = await read_info(blue, topic, topic.partitions(count), existing)
    documents: dict[str, JsonObject] = info.get("partitions") or {str(topic): info}
    statistics = await stats_of(blue, topic.partitions(count))
    loaded = {name: stats for name, stats in statistics.items() if isinstance(stats, TopicStats)}
    terminated = bool(documents) and all("terminatedPosition" in document for document in documents.values())
    # A drained subscription of a topic that ended is left over; one of an open topic is in use.
    kept = [cursor for cursor in subscriptions_in_info(topic, info) if not terminated or _is_unread(cursor, loaded)]
    return LeftoverTopic(
        topic=topic,
        partitions=count,
        terminated=terminated,
        subscriptions=tuple(sorted({cursor.name for cursor in kept})),
        clients=tuple(str(client) for stats in loaded.values() for client in stats.clients),
        entries=sum(_entries(document) for document in documents.values()),
    )


def _entries(document: JsonObject) -> int:
    return sum(max(0, int(ledger.get("entries") or 0)) for ledger in document.get("ledgers") or ())


def _is_unread(cursor: SubscriptionState, loaded: Mapping[TopicName, TopicStats]) -> bool:
    """Whether a subscription has unread messages; of a partition that is not loaded, any that exists may have some."""
    stats = loaded.get(TopicName.parse(cursor.partition))
    subscription = stats.subscriptions.get(cursor.name) if stats else None
    return subscription is None or subscription.backlog > 0
