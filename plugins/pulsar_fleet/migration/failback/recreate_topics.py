"""What a migration left of a namespace on blue: looked at without loading anything, and made anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.topic_statistics import ConnectedClient, TopicStats
from pulsar_fleet.migration.cleanup import remove_topic
from pulsar_fleet.migration.failback.checks import Stale
from pulsar_fleet.snapshot.documents import cursors_of, topics_of

log = logging.getLogger(__name__)


async def stale_topics(blue: AdminClient, namespace: NamespaceName) -> tuple[Stale, ...]:
    """Every topic of the namespace on blue; what is flagged and not loaded has no clients and stays unloaded."""
    topics = await topics_of(blue, namespace)
    return tuple(await asyncio.gather(*(_stale(blue, topic, count) for topic, count in topics.items())))


async def make_anew(blue: AdminClient, stale: Stale, topics: Mapping[TopicName, int], like: AdminClient) -> bool:
    """Remove a closed topic and create it empty, with the partitions and properties that it has on green.

    One that is open already, from an earlier try, is left as it is; one that green does not have is only removed.
    The namespace must not be flagged any more: a flagged one takes no new topics. True if it was removed.

    :raises Refused: somebody is connected to it, or it was created with another partition count by somebody else.
    """
    if stale.closed:
        await remove_topic(blue, stale.topic, stale.partitions)
        log.info("%s: closed topic removed, with %d entries", stale.topic, stale.entries)
    if stale.topic in topics:
        await create_like(blue, stale.topic, topics[stale.topic], like)
    return stale.closed


async def create_like(blue: AdminClient, topic: TopicName, count: int, like: AdminClient) -> None:
    """Create a topic as it is on the other cluster, unless it is there."""
    properties = (await like.partition_metadata(topic)).properties if count else {}
    if count:
        await blue.create_partitioned_topic(topic, count, properties)
    elif topic not in await blue.topics(topic.namespace):
        await blue.create_topic(topic)
    found = (await blue.partition_metadata(topic)).partitions
    if found != count:
        raise PreconditionFailed(
            f"{topic} has {found or 'no'} partitions on {blue.connection.name} and {count or 'none'} on "
            f"{like.connection.name}: a client created it in between. Remove it there, then run again."
        )


async def _stale(blue: AdminClient, topic: TopicName, count: int) -> Stale:
    info = await blue.internal_info(topic)
    parts: dict[str, JsonObject] = info.get("partitions") or {str(topic): info}
    found = await asyncio.gather(*(_clients(blue, partition) for partition in topic.partitions(count)))
    return Stale(
        topic=topic,
        partitions=count,
        closed=bool(parts) and all("terminatedPosition" in part for part in parts.values()),
        subscriptions=tuple(sorted({one.name for one in cursors_of(topic, info)})),
        clients=tuple(str(client) for each in found for client in each),
        entries=sum(_entries(part) for part in parts.values()),
    )


def _entries(part: JsonObject) -> int:
    return sum(max(0, int(ledger.get("entries") or 0)) for ledger in part.get("ledgers") or ())


async def _clients(blue: AdminClient, partition: TopicName) -> tuple[ConnectedClient, ...]:
    try:
        return TopicStats.of(partition, await blue.stats(partition, precise=False)).clients
    except (Conflict, NotFound):
        return ()
