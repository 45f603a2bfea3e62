"""Read the topics of a namespace on one cluster (client)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import PARTITIONED_TOPICS_OF, SCHEMAS_OF
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.policy_sync.merge.topic_fields import is_synchronised
from pulsar_fleet.snapshot.model import SchemaState, TopicState
from pulsar_fleet.snapshot.resources import read_partitioned, schema_state

PartitionedTopic = tuple[TopicState, list[SchemaState]]


async def read_partitioned_topics(
    admin: AdminClient, namespace: NamespaceName, partial_reads: PartialReads, only: Collection[str] | None = None
) -> list[PartitionedTopic]:
    """The partitioned topics of a namespace with their schemas: one call, and two for each topic; none is loaded.

    :param only: names of the topics that are read; None means all.
    """
    listed = await partial_reads.read(f"{PARTITIONED_TOPICS_OF}{namespace}", admin.partitioned_topics(namespace))
    chosen = [name for name in listed or () if is_synchronised(name) and (only is None or str(name) in only)]
    topics = await asyncio.gather(*(_read(admin, name, partial_reads) for name in chosen))
    return [topic for topic in topics if topic is not None]


async def read_topic_names(admin: AdminClient, namespace: NamespaceName) -> frozenset[str]:
    """Every topic of a namespace, partitioned topics and partitions too: three calls; empty without the namespace."""
    try:
        listed = (*await admin.topics(namespace), *await read_partitioned(admin, namespace))
    except NotFound:
        return frozenset()
    return frozenset(str(topic.parent) for topic in listed) | frozenset(map(str, listed))


async def _read(admin: AdminClient, topic: TopicName, partial_reads: PartialReads) -> PartitionedTopic | None:
    name = str(topic)
    metadata = await partial_reads.read(name, admin.partition_metadata(topic))
    schemas = await partial_reads.read(f"{SCHEMAS_OF}{name}", admin.schemas(topic))
    if metadata is None or schemas is None or not metadata.partitions:
        return None
    state = TopicState(name, metadata.partitions, dict(metadata.properties))
    return state, [schema_state(topic, version) for version in schemas]
