"""Read single resources of a cluster: for a snapshot, and for the live state before and after a change."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import stored_redirect
from pulsar_fleet.cluster.errors import NotAllowed, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName, own_topic_properties
from pulsar_fleet.cluster.policies.effective import clusters_in_effect, clusters_of_topic
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS, Scope
from pulsar_fleet.cluster.policies.namespace_catalogue import LOCAL_FIELDS
from pulsar_fleet.cluster.redaction import Redactor, without_user_info
from pulsar_fleet.cluster.runs.overrides import overrides_in, without_overrides
from pulsar_fleet.cluster.statistics import cursors_in_info, is_system_cursor
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY, SchemaState, SubscriptionState, TopicPolicyState


async def read_namespace(
    admin: AdminClient, namespace: NamespaceName, redactor: Redactor, *, local: bool = True
) -> JsonObject | None:
    """The redacted policies document with the local settings merged in; None if the namespace does not exist.

    What a run overrides has its original value.

    A local setting that our role may not read has no key.

    :param local: also read the settings that a cluster keeps outside of the document: one call for each.
    """
    document = await admin.namespace(namespace)
    if document is None:
        return None
    document = without_overrides(document)
    if local:
        document |= await _read_local(admin, namespace)
    # The keys of auth_policies are names of roles, which may look like keys of secrets.
    return {field: value if field == "auth_policies" else redactor.redact(value) for field, value in document.items()}


async def read_partitioned(admin: AdminClient, namespace: NamespaceName) -> tuple[TopicName, ...]:
    """The partitioned topics, with the non-persistent ones."""
    listed = await admin.get(f"/non-persistent/{namespace.path}/partitioned")
    return (*await admin.partitioned_topics(namespace), *sorted(TopicName.parse(text) for text in listed))


async def read_info(
    admin: AdminClient,
    topic: TopicName,
    partitions: Collection[TopicName],
    existing: Collection[TopicName],
    *,
    answered_retry_seconds: float | None = None,
) -> JsonObject:
    """`internal-info` of a partitioned topic, of those of its partitions that exist.

    For a topic that lacks a partition the broker answers 500 (observed), so each existing partition is asked then.
    Partitions without messages and subscriptions come and go: see `NamespaceContents`.

    :param partitions: all partitions by its partition count.
    :param existing: topics of the namespace that exist.
    """
    present = [partition for partition in partitions if partition in existing]
    if len(present) == len(partitions):
        return await admin.internal_info(topic, answered_retry_seconds=answered_retry_seconds)
    documents = await asyncio.gather(
        *(admin.internal_info(partition, answered_retry_seconds=answered_retry_seconds) for partition in present)
    )
    return {"partitions": dict(zip(map(str, present), documents, strict=True))}


def subscriptions_in_info(topic: TopicName, info: JsonObject) -> tuple[SubscriptionState, ...]:
    """The subscriptions in an `internal-info` answer, without system cursors and without properties."""
    parts = info.get("partitions") or {str(topic): info}
    states = (
        SubscriptionState(str(topic), partition, name, str(cursor.mark_delete), cursor.replicated)
        for partition, document in parts.items()
        for name, cursor in cursors_in_info(document).items()
        if not is_system_cursor(name)
    )
    return tuple(sorted(states, key=lambda state: (state.partition, state.name)))


def partition_properties(info: JsonObject) -> JsonObject:
    """Partition → its own properties in an `internal-info` answer, if it has any but `MIGRATED_PROPERTY`."""
    parts: JsonObject = info.get("partitions") or {}
    own = {name: own_topic_properties(part.get("properties")) for name, part in parts.items()}
    for properties in own.values():
        properties.pop(MIGRATED_PROPERTY, None)
    return {name: properties for name, properties in sorted(own.items()) if properties}


def is_terminated(info: JsonObject) -> bool:
    """Whether the topic of an `internal-info` answer, or one of its partitions, is terminated."""
    return any("terminatedPosition" in part for part in (info, *(info.get("partitions") or {}).values()))


def schema_state(topic: TopicName, version: JsonObject) -> SchemaState:
    """One version in the answer of `AdminClient.schemas`."""
    return SchemaState(
        str(topic),
        int(version["version"]),
        str(version["type"]),
        str(version.get("data") or ""),
        dict(version.get("properties") or {}),
        int(version.get("timestamp") or 0),
    )


def lists_of_topics(states: Iterable[TopicPolicyState]) -> dict[TopicName, frozenset[str]]:
    """The lists of clusters that topics have themselves, see `clusters_of_topic`."""
    policies: dict[str, dict[str, JsonObject]] = {}
    for state in states:
        policies.setdefault(state.topic, {})[state.scope] = state.policies
    lists = {
        TopicName.parse(topic): clusters_of_topic(
            local=documents.get(Scope.LOCAL, {}), shared=documents.get(Scope.GLOBAL, {})
        )
        for topic, documents in policies.items()
    }
    return {topic: frozenset(clusters) for topic, clusters in lists.items() if clusters}


async def read_clusters_in_effect(admin: AdminClient, topic: TopicName, *, without_own: bool = False) -> list[str]:
    """The list of clusters in effect for a topic now; three calls.

    :param without_own: as it would be without the topic's own list.
    """
    local, shared = await read_topic_lists(admin, topic)
    namespace, own = await admin.namespace(topic.namespace) or {}, await admin.cluster_name()
    return clusters_in_effect(local={} if without_own else local, shared=shared, namespace=namespace, own=own)


async def read_topic_lists(admin: AdminClient, topic: TopicName) -> tuple[JsonObject, JsonObject]:
    """The policies of a topic that have its own list of clusters and its global one; two calls.

    :raises NotFound: there is no such topic.
    """
    local, shared = [await admin.get(f"/{topic.path}/replication", isGlobal=scope) for scope in (False, True)]
    return {TOPIC_CLUSTERS: local}, {TOPIC_CLUSTERS: shared}


async def read_migrated_to(admin: AdminClient, name: NamespaceName, policies: JsonObject) -> str:
    """Which migration ended a namespace with these policies here, and where it is now, as a sentence; empty for none.

    The flag of the namespace or of the whole cluster: one call. A role that may not read the redirect sees the flag of
    the namespace only.
    """
    own = await admin.cluster_name()
    try:
        redirect, unread = without_user_info(await stored_redirect(admin, own) or {}), False
    except NotAllowed:
        redirect, unread = {}, True
    if not (policies.get("migrated") or redirect.get("migrated")):
        return ""
    record, addresses = overrides_in(policies), redirect.get("migratedClusterUrl") or {}
    # The port may be of a service that the other cluster does not have: some clients need all four addresses.
    hosts = {urlsplit(str(address)).hostname or "" for address in addresses.values()} - {""}
    where = " at ".join(part for part in (record.replicates_to if record else "", ", ".join(sorted(hosts))) if part)
    run = f" by the run {record.run}" if record else ""
    sends = f"redirects its clients to {where}" if hosts else "has no redirect for its clients"
    if unread:
        sends = f"redirects its clients to {where or 'a cluster that this role may not read'}"
    return f"{name} is flagged as migrated on {own}{run}: {own} {sends}"


async def _read_local(admin: AdminClient, namespace: NamespaceName) -> JsonObject:
    """Settings with paths of their own; when the first is answered 404, the cluster has none of them (observed)."""
    settings: dict[str, Json] = {policy.field: None for policy in LOCAL_FIELDS}
    for policy in LOCAL_FIELDS:
        try:
            settings[policy.field] = await admin.get(f"/namespaces/{namespace.path}/{policy.path}")
        except NotFound:
            return settings
        except NotAllowed:
            del settings[policy.field]
    return settings


async def read_partition_counts(admin: AdminClient, name: NamespaceName) -> dict[TopicName, int]:
    """Topic → partition count (0: not partitioned), without system topics: two calls, and one per partitioned topic."""
    partitioned = [topic for topic in await admin.partitioned_topics(name) if not topic.is_system]
    metadata_of_topics = await asyncio.gather(*(admin.partition_metadata(topic) for topic in partitioned))
    topics = {topic: metadata.partitions for topic, metadata in zip(partitioned, metadata_of_topics, strict=True)}
    for topic in await admin.topics(name):
        if not topic.is_system and topic.parent not in topics:
            topics[topic] = 0
    return topics
