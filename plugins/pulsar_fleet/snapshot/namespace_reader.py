"""Read one namespace: six calls for itself, two for each topic, three for a partitioned one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient, PartitionMetadata
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.lookup import LOCAL_FIELDS
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.snapshot.documents import cursors_of, is_terminated, read_namespace, read_partitioned, schema_state
from pulsar_fleet.snapshot.inventory import system_topics
from pulsar_fleet.snapshot.model import InventoryState, NamespaceState, Row, SubscriptionState, TopicState
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

_PATIENCE = 3.0
"""Seconds for which `internal-info` is tried again: a topic without the offloader that it asks for fails for ever."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A namespace and what lies in it, by name.

    :param topics: in order; a partitioned one by its own name, and then it is in `partitioned`.
    :param system: the topics that the brokers keep for themselves.
    """

    name: NamespaceName
    state: NamespaceState
    topics: tuple[TopicName, ...]
    partitioned: frozenset[TopicName]
    system: tuple[InventoryState, ...]


class NamespaceReader:
    """Reads namespaces of one cluster piece by piece, so that no piece is large.

    :param load_topics: ask topics for the properties of their subscriptions, a call each, which loads them.
    """

    def __init__(
        self,
        admin: AdminClient,
        seal: Redactor,
        policies: TopicPolicyReader,
        attempts: PartialReads,
        *,
        load_topics: bool,
    ) -> None:
        self._admin = admin
        self._seal = seal
        self._policies = policies
        self._attempts = attempts
        self._load_topics = load_topics
        # Some more topics than connections, so that none of these ever waits for us.
        self._slots = asyncio.Semaphore(2 * admin.connection.max_connections)

    async def contents(self, name: NamespaceName) -> Contents | None:
        """The policies and the names of the topics; None with a note if they cannot be read."""
        read = self._attempts.read
        document = await read(str(name), read_namespace(self._admin, name, self._seal))
        if document is None:
            return None
        if any(policy.field not in document for policy in LOCAL_FIELDS):
            self._attempts.hide(Area.BOOKIE_AFFINITY, f"First of {name}: only a superuser may read it.")
        listed = await read(str(name), self._admin.topics(name, system=True))
        partitioned = await read(str(name), read_partitioned(self._admin, name)) if listed is not None else None
        if listed is None or partitioned is None:
            return None
        parents = frozenset(partitioned)
        # A non-persistent topic without partitions exists only while somebody uses it.
        plain = (topic for topic in listed if topic.parent not in parents and topic.persistent)
        topics = sorted((topic for topic in (*parents, *plain) if not topic.is_system), key=str)
        return Contents(name, NamespaceState(str(name), document), tuple(topics), parents, system_topics(name, listed))

    async def topics(self, names: Sequence[TopicName], partitioned: frozenset[TopicName]) -> list[Row]:
        """Rows of these topics, their schemas and subscriptions, in the order of the names."""
        found = await asyncio.gather(*(self._topic(name, name in partitioned) for name in names))
        return [row for rows in found for row in rows]

    async def topic_policies(self, name: NamespaceName) -> list[Row]:
        """Rows of the namespace's topic policies."""
        found = await self._attempts.read(f"topic policies of {name}", self._policies.read(name)) or ()
        return [*sorted(found, key=lambda one: (one.topic, one.scope))]

    async def _topic(self, topic: TopicName, partitioned: bool) -> list[Row]:
        read, name = self._attempts.read, str(topic)
        metadata: PartitionMetadata | None = None
        info: JsonObject | None = {}
        async with self._slots:
            if partitioned and (metadata := await read(name, self._admin.partition_metadata(topic))) is None:
                return []
            if topic.persistent:
                # A broker answers 500 to internal-info of a topic that was deleted.
                asked = self._admin.internal_info(topic, patience=_PATIENCE)
                info = await read(name, asked, is_gone=lambda: self._is_gone(topic))
            if info is None or (versions := await read(name, self._admin.schemas(topic))) is None:
                return []
            subscriptions = cursors_of(topic, info)
            if self._load_topics and subscriptions:
                subscriptions = await self._with_properties(topic, subscriptions, partitioned)
        count, properties = (metadata.partitions, metadata.properties) if metadata else (0, info.get("properties"))
        state = TopicState(name, count, dict(properties or {}), is_terminated(info))
        return [state, *(schema_state(topic, version) for version in versions), *subscriptions]

    async def _with_properties(
        self, topic: TopicName, subscriptions: Sequence[SubscriptionState], partitioned: bool
    ) -> tuple[SubscriptionState, ...]:
        kind, query = ("partitioned-stats", {"perPartition": False}) if partitioned else ("stats", {})
        asked = self._admin.get(f"/{topic.path}/{kind}", **query)
        stats = await self._attempts.read(f"subscription properties of {topic}", asked)
        properties = {
            one.name: dict(one.properties) for one in TopicStats.of(topic, stats or {}).subscriptions.values()
        }
        return tuple(replace(one, properties=properties.get(one.name, {})) for one in subscriptions)

    async def _is_gone(self, topic: TopicName) -> bool:
        try:
            listed = await self._admin.topics(topic.namespace)
        except NotFound:
            return True
        return not any(topic in (one, one.parent) for one in listed)
