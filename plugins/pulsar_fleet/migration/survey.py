"""Read what the gates look at from both clusters. Loads the topics of the namespaces on blue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.facts import ClusterFacts, NamespaceFacts, PartitionFacts
from pulsar_fleet.migration.redirect import stored_redirect

_REACH_SECONDS = 5.0


async def survey_cluster(admin: AdminClient) -> ClusterFacts:
    """The cluster's name, each broker's own configuration, and the redirect that is stored."""
    name = await admin.cluster_name()
    brokers = await admin.brokers()
    settings = await asyncio.gather(*(admin.runtime_configuration(broker) for broker in brokers))
    return ClusterFacts(
        name=name,
        brokers=dict(zip(brokers, settings, strict=True)),
        redirect=await stored_redirect(admin, name),
    )


async def survey_namespace(blue: AdminClient, green: AdminClient, name: NamespaceName) -> NamespaceFacts:
    """One namespace on both sides; every topic on blue is loaded by it, topics on green only where they exist."""
    on_blue, on_green = await blue.namespace(name), await green.namespace(name)
    topics = await topics_of(blue, name) if on_blue is not None else {}
    green_topics = await topics_of(green, name) if on_green is not None else {}
    rates = await asyncio.gather(*(_publish_rate(blue, topic) for topic in topics if topic.persistent))
    return NamespaceFacts(
        namespace=name,
        blue=on_blue,
        green=on_green,
        topics=topics,
        green_topics=green_topics,
        partitions=await survey_partitions(blue, _partitions(topics)),
        green_partitions=await survey_partitions(green, _partitions(green_topics)),
        topic_publish_rates=tuple(topic for topic in rates if topic is not None),
    )


async def topics_of(admin: AdminClient, name: NamespaceName) -> dict[TopicName, int]:
    """Topic → partition count (0 for a plain one), system topics left out."""
    partitioned = [topic for topic in await admin.partitioned_topics(name) if not topic.is_system]
    found = await asyncio.gather(*(admin.partition_metadata(topic) for topic in partitioned))
    topics = {topic: metadata.partitions for topic, metadata in zip(partitioned, found, strict=True)}
    for topic in await admin.topics(name):
        if not topic.is_system and topic.parent not in topics:
            topics[topic] = 0
    return topics


async def survey_partitions(admin: AdminClient, partitions: Iterable[TopicName]) -> tuple[PartitionFacts, ...]:
    """Statistics of each partition by itself: the broker's sum leaves out, in silence, what it cannot load."""
    names = tuple(partitions)
    documents = await asyncio.gather(*(admin.stats(topic) for topic in names))
    return tuple(PartitionFacts.from_stats(topic, stats) for topic, stats in zip(names, documents, strict=True))


async def require_reachable(green: ClusterConnection) -> None:
    """`Refused` unless green's broker service URL takes a connection from here: blue's clients will be sent there."""
    parts = urlsplit(green.require_service_url())
    port = parts.port or (6651 if parts.scheme == "pulsar+ssl" else 6650)
    try:
        async with asyncio.timeout(_REACH_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except OSError as error:
        raise Refused(
            f"Nobody answers at {green.service_url!r}, the broker service URL of connection {green.name!r} "
            f"({error or 'time-out'}); blue's clients would be sent there. Correct the connection."
        ) from error
    writer.close()


async def _publish_rate(admin: AdminClient, topic: TopicName) -> TopicName | None:
    return topic if await admin.get(f"/{topic.path}/publishRate") else None


def _partitions(topics: dict[TopicName, int]) -> Sequence[TopicName]:
    return [partition for topic, count in topics.items() for partition in topic.partitions(count)]
