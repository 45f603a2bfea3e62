"""Single resources of a cluster as values: what a snapshot and a look at live state read alike."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.cursors import cursors_in_info
from pulsar_fleet.cluster.errors import NotAllowed, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.lookup import LOCAL_FIELDS
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.system_cursors import is_system_cursor
from pulsar_fleet.snapshot.model import SchemaState, SubscriptionState


async def read_namespace(
    admin: AdminClient, namespace: NamespaceName, seal: Redactor, *, local: bool = True
) -> JsonObject | None:
    """The policies document without secrets, the settings outside of it merged in; None without such a namespace.

    A setting outside of it that our role may not read has no key at all.

    :param local: read the settings outside of it too, which takes a call each.
    """
    document = await admin.namespace(namespace)
    if document is None:
        return None
    if local:
        document |= await _read_local(admin, namespace)
    # Roles are keys there, whatever they are called, and their rights are no secrets.
    return {field: value if field == "auth_policies" else seal.redact(value) for field, value in document.items()}


async def read_partitioned(admin: AdminClient, namespace: NamespaceName) -> tuple[TopicName, ...]:
    """The partitioned topics, non-persistent ones included."""
    listed = await admin.get(f"/non-persistent/{namespace.path}/partitioned")
    return (*await admin.partitioned_topics(namespace), *sorted(TopicName.parse(text) for text in listed))


def cursors_of(topic: TopicName, info: JsonObject) -> tuple[SubscriptionState, ...]:
    """The subscriptions in an `internal-info` answer, without the brokers' own cursors and without properties."""
    parts = info.get("partitions") or {str(topic): info}
    found = (
        SubscriptionState(str(topic), partition, name, str(cursor.mark_delete), cursor.replicated)
        for partition, document in parts.items()
        for name, cursor in cursors_in_info(document).items()
        if not is_system_cursor(name)
    )
    return tuple(sorted(found, key=lambda one: (one.partition, one.name)))


def is_terminated(info: JsonObject) -> bool:
    """Whether an `internal-info` answer is of a topic, or has a partition, that takes no more messages."""
    return any("terminatedPosition" in part for part in (info, *(info.get("partitions") or {}).values()))


def schema_state(topic: TopicName, found: JsonObject) -> SchemaState:
    """One version in the answer of `AdminClient.schemas`."""
    return SchemaState(
        str(topic),
        int(found["version"]),
        str(found["type"]),
        str(found.get("data") or ""),
        dict(found.get("properties") or {}),
        int(found.get("timestamp") or 0),
    )


async def _read_local(admin: AdminClient, namespace: NamespaceName) -> JsonObject:
    """Settings with an address of their own. Where one is answered 404, the cluster holds none of them (observed)."""
    found: dict[str, Json] = {policy.field: None for policy in LOCAL_FIELDS}
    for policy in LOCAL_FIELDS:
        try:
            found[policy.field] = await admin.get(f"/namespaces/{namespace.path}/{policy.path}")
        except NotFound:
            return found
        except NotAllowed:
            del found[policy.field]
    return found


async def topics_of(admin: AdminClient, name: NamespaceName) -> dict[TopicName, int]:
    """Persistent topic → partition count (0 for a plain one), system topics left out; two calls and one for each."""
    partitioned = [topic for topic in await admin.partitioned_topics(name) if not topic.is_system]
    found = await asyncio.gather(*(admin.partition_metadata(topic) for topic in partitioned))
    topics = {topic: metadata.partitions for topic, metadata in zip(partitioned, found, strict=True)}
    for topic in await admin.topics(name):
        if not topic.is_system and topic.parent not in topics:
            topics[topic] = 0
    return topics
