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
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.overrides import NamespaceOverrides, overrides_in
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.snapshot.inventory import system_topics
from pulsar_fleet.snapshot.model import (
    InventoryState,
    NamespaceState,
    Row,
    SubscriptionState,
    TopicPolicyState,
    TopicState,
)
from pulsar_fleet.snapshot.resources import (
    is_terminated,
    read_namespace,
    read_partitioned,
    schema_state,
    subscriptions_in_info,
)
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

_ANSWERED_RETRY_SECONDS = 3.0
"""For how long an answered failure of `internal-info` is retried: a topic whose offloader is missing fails forever."""


@dataclass(frozen=True, slots=True)
class NamespaceContents:
    """A namespace and the names of its topics.

    :param topics: sorted, without system topics; the partitioned ones are also in `partitioned`.
    """

    name: NamespaceName
    state: NamespaceState
    topics: tuple[TopicName, ...]
    partitioned: frozenset[TopicName]
    system: tuple[InventoryState, ...]


@dataclass
class NamespaceReader:
    """Reads namespaces of one cluster in parts, so that no part is large.

    :param load_topics: read the properties of subscriptions: one call for each topic, which loads the topic.
    """

    admin: AdminClient
    redactor: Redactor
    policies: TopicPolicyReader
    reads: PartialReads
    load_topics: bool

    def __post_init__(self) -> None:
        # Twice as many topics as connections, so that no connection is idle.
        self._slots = asyncio.Semaphore(2 * self.admin.connection.max_connections)

    async def contents(self, name: NamespaceName) -> NamespaceContents | None:
        """The policies and the names of the topics; None with a note if they cannot be read."""
        read = self.reads.read
        document = await read(str(name), read_namespace(self.admin, name, self.redactor))
        if document is None:
            return None
        if any(policy.field not in document for policy in LOCAL_FIELDS):
            self.reads.hide(Area.BOOKIE_AFFINITY, f"Only a superuser may read it; first met at {name}.")
        listed = await read(str(name), self.admin.topics(name, system=True))
        partitioned = await read(str(name), read_partitioned(self.admin, name)) if listed is not None else None
        if listed is None or partitioned is None:
            return None
        parents = frozenset(partitioned)
        # A non-persistent topic without partitions exists only while it has clients.
        plain = (topic for topic in listed if topic.parent not in parents and topic.persistent)
        topics = sorted((topic for topic in (*parents, *plain) if not topic.is_system), key=str)
        return NamespaceContents(
            name, NamespaceState(str(name), document), tuple(topics), parents, system_topics(name, listed)
        )

    async def topics(self, names: Sequence[TopicName], partitioned: frozenset[TopicName]) -> list[Row]:
        """Rows of these topics, their schemas and subscriptions, in the order of the names."""
        rows_of_topics = await asyncio.gather(*(self._topic(name, name in partitioned) for name in names))
        return [row for rows in rows_of_topics for row in rows]

    async def topic_policies(self, contents: NamespaceContents) -> list[Row]:
        """Rows of the namespace's topic policies; what a run overrides has its original value."""
        name, record = contents.name, overrides_in(contents.state.policies)
        states = await self.reads.read(f"topic policies of {name}", self.policies.read(name)) or ()
        if record:
            states = tuple(_original(record, state) for state in states)
        return [*sorted(states, key=lambda state: (state.topic, state.scope))]

    async def _topic(self, topic: TopicName, partitioned: bool) -> list[Row]:
        read, name = self.reads.read, str(topic)
        metadata: PartitionMetadata | None = None
        info: JsonObject | None = {}
        async with self._slots:
            if partitioned and (metadata := await read(name, self.admin.partition_metadata(topic))) is None:
                return []
            if topic.persistent:
                # A broker answers 500 to internal-info of a topic that was deleted.
                call = self.admin.internal_info(topic, answered_retry_seconds=_ANSWERED_RETRY_SECONDS)
                info = await read(name, call, is_gone=lambda: self._is_gone(topic))
            if info is None or (versions := await read(name, self.admin.schemas(topic))) is None:
                return []
            subscriptions = subscriptions_in_info(topic, info)
            if self.load_topics and subscriptions:
                subscriptions = await self._with_properties(topic, subscriptions, partitioned)
        count, properties = (metadata.partitions, metadata.properties) if metadata else (0, info.get("properties"))
        state = TopicState(name, count, dict(properties or {}), is_terminated(info))
        return [state, *(schema_state(topic, version) for version in versions), *subscriptions]

    async def _with_properties(
        self, topic: TopicName, subscriptions: Sequence[SubscriptionState], partitioned: bool
    ) -> tuple[SubscriptionState, ...]:
        kind, query = ("partitioned-stats", {"perPartition": False}) if partitioned else ("stats", {})
        call = self.admin.get(f"/{topic.path}/{kind}", **query)
        stats = await self.reads.read(f"subscription properties of {topic}", call)
        in_stats = TopicStats.of(topic, stats or {}).subscriptions
        properties = {name: dict(subscription.properties) for name, subscription in in_stats.items()}
        return tuple(replace(state, properties=properties.get(state.name, {})) for state in subscriptions)

    async def _is_gone(self, topic: TopicName) -> bool:
        try:
            listed = await self.admin.topics(topic.namespace)
        except NotFound:
            return True
        return not any(topic in (listed_topic, listed_topic.parent) for listed_topic in listed)


def _original(record: NamespaceOverrides, state: TopicPolicyState) -> TopicPolicyState:
    if state.scope != Scope.LOCAL:
        return state
    return replace(state, policies=record.original_topic_policies(state.topic, state.policies))
