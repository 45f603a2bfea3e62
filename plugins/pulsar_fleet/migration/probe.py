"""Try to come in as an application does: a topic that lets no fresh producer in is closed to all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.messaging import open_client
from pulsar_fleet.cluster.names import TopicName

PROBED = 5
"""Topics probed at a time: each takes a client's time-out."""
_SECONDS = 8


async def closed_topics(blue: ClusterConnection, topics: Collection[TopicName]) -> frozenset[TopicName]:
    """Those of the first few topics into which a producer does not come within 8 s; nothing is written."""
    asked = list(topics)[:PROBED]
    found = await asyncio.gather(*(asyncio.to_thread(_is_closed, blue, topic) for topic in asked))
    return frozenset(topic for topic, closed in zip(asked, found, strict=True) if closed)


def _is_closed(blue: ClusterConnection, topic: TopicName) -> bool:
    import pulsar

    client = open_client(blue, _SECONDS)
    try:
        client.create_producer(str(topic)).close()
    except (pulsar.Timeout, pulsar.ServiceUnitNotReady):
        return True
    except pulsar.PulsarException:
        # Refused for another reason, such as its schema: somebody answered, so the topic is not fenced.
        return False
    finally:
        client.close()
    return False
