"""Partitioned topics on real clusters: what a test sets, and what a cluster has of them."""

from __future__ import annotations

import pulsar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import TopicName


def record(*fields: str) -> JsonObject:
    names = ",".join(f'{{"name":"{field}","type":["null","string"],"default":null}}' for field in fields)
    text = f'{{"type":"record","name":"Order","fields":[{names}]}}'
    return {"type": "AVRO", "schema": text, "properties": {}}


async def partitions(admin: AdminClient, topic: TopicName) -> int:
    """The partition count; 0 for a topic without partitions, -1 for none."""
    if topic in await admin.partitioned_topics(topic.namespace):
        return (await admin.partition_metadata(topic)).partitions
    return 0 if topic in await admin.topics(topic.namespace) else -1


async def properties(admin: AdminClient, topic: TopicName) -> dict[str, str]:
    return dict((await admin.partition_metadata(topic)).properties)


async def schemas(admin: AdminClient, topic: TopicName) -> list[str]:
    return [str(version["data"]) for version in await admin.schemas(topic)]


def produce(connection: ClusterConnection, topic: TopicName) -> None:
    """As an application does that expects its topic to exist."""
    client = open_client(connection)
    try:
        client.create_producer(str(topic)).send(b"first")
    except pulsar.PulsarException as error:
        raise AssertionError(f"{topic} could not be created by a client") from error
    finally:
        client.close()
