"""The topics of a namespace by their own names, without loading any."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, TopicName


async def topics_of(admin: AdminClient, name: NamespaceName) -> dict[TopicName, int]:
    """Persistent topic → partition count (0 for a plain one), system topics left out; two calls and one for each."""
    partitioned = [topic for topic in await admin.partitioned_topics(name) if not topic.is_system]
    found = await asyncio.gather(*(admin.partition_metadata(topic) for topic in partitioned))
    topics = {topic: metadata.partitions for topic, metadata in zip(partitioned, found, strict=True)}
    for topic in await admin.topics(name):
        if not topic.is_system and topic.parent not in topics:
            topics[topic] = 0
    return topics
