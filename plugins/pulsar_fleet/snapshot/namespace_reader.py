"""Read one namespace: six calls for itself, two for each topic, three for a partitioned one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pulsar_fleet.cluster.admin.call import PartitionMetadata
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import (
    SCHEMAS_OF,
    SUBSCRIPTION_PROPERTIES_OF,
    SUBSCRIPTIONS_OF,
    TOPIC_POLICIES_OF,
    Area,
    PartialReads,
)
from pulsar_fleet.cluster.errors import FleetError, NotFound, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName, own_topic_properties
from pulsar_fleet.cluster.policies.namespace_catalogue import LOCAL_FIELDS
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.overrides import NamespaceOverrides, overrides_in
from pulsar_fleet.cluster.statistics import TopicStats
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
    partition_properties,
    read_info,
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

    :param topics: sorted, without system topics.
    :param partitioned: the partitioned topics, each with its partitions that exist: a partition is created when it is
        first loaded, and the deletion of inactive topics removes it.
    """

    name: NamespaceName
    state: NamespaceState
    topics: tuple[TopicName, ...]
    partitioned: Mapping[TopicName, Collection[TopicName]]
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
        is_gone = partial(self._is_namespace_gone, name)
        document = await read(str(name), read_namespace(self.admin, name, self.redactor), is_gone=is_gone)
        if document is None:
            return None
        if any(policy.field not in document for policy in LOCAL_FIELDS):
            self.reads.hide(Area.BOOKIE_AFFINITY, f"Only a superuser may read it; first met at {name}.")
        listed = await read(str(name), self.admin.topics(name, system=True), is_gone=is_gone)
        partitioned = await read(str(name), read_partitioned(self.admin, name)) if listed is not None else None
        if listed is None or partitioned is None:
            return None
        parents = frozenset(partitioned)
        # A non-persistent topic without partitions exists only while it has clients.
        plain = (topic for topic in listed if topic.parent not in parents and topic.persistent)
        topics = sorted((topic for topic in (*parents, *plain) if not topic.is_system), key=str)
        partitions: dict[TopicName, set[TopicName]] = {parent: set() for parent in parents}
        for topic in listed:
            if topic.parent in parents:
                partitions[topic.parent].add(topic)
        return NamespaceContents(
            name, NamespaceState(str(name), document), tuple(topics), partitions, system_topics(name, listed)
        )

    async def topics(
        self, names: Sequence[TopicName], partitioned: Mapping[TopicName, Collection[TopicName]]
    ) -> list[Row]:
        """Rows of these topics, their schemas and subscriptions, in the order of the names."""
        rows_of_topics = await asyncio.gather(*(self._topic(name, partitioned.get(name)) for name in names))
        return [row for rows in rows_of_topics for row in rows]

    async def topic_policies(self, contents: NamespaceContents) -> list[Row]:
        """Rows of the namespace's topic policies; what a run overrides has its original value."""
        name, record = contents.name, overrides_in(contents.state.policies)
        states = await self.reads.read(f"{TOPIC_POLICIES_OF}{name}", self.policies.read(name)) or ()
        if record:
            states = tuple(original_state(record, state) for state in states)
        return [*sorted(states, key=lambda state: (state.topic, state.scope))]

    async def _topic(self, topic: TopicName, existing: Collection[TopicName] | None) -> list[Row]:
        """The rows of one topic; `existing` are the partitions of a partitioned topic that exist."""
        read, name = self.reads.read, str(topic)
        is_gone = partial(self._is_gone, topic)
        metadata: PartitionMetadata | None = None
        async with self._slots:
            if existing is not None:
                metadata = await read(name, self.admin.partition_metadata(topic), is_gone=is_gone)
                if metadata is None:
                    return []
            resource = name if metadata is None else f"{SUBSCRIPTIONS_OF}{name}"
            info = await read(resource, self._info(topic, metadata, existing or ()), is_gone=is_gone)
            if info is None and metadata is None:
                return []
            versions = await read(f"{SCHEMAS_OF}{name}", self.admin.schemas(topic), is_gone=is_gone) or ()
            subscriptions = subscriptions_in_info(topic, info or {})
            if self.load_topics and subscriptions:
                subscriptions = await self._with_properties(topic, subscriptions, metadata is not None)
        document = info or {}
        count, properties = (metadata.partitions, metadata.properties) if metadata else (0, document.get("properties"))
        own = partition_properties(document)
        state = TopicState(name, count, own_topic_properties(properties), is_terminated(document), own)
        rows: list[Row] = [state, *(schema_state(topic, version) for version in versions), *subscriptions]
        if metadata:
            rows += await self._beyond(topic.partitions(metadata.partitions), existing or ())
        return rows

    async def _info(
        self, topic: TopicName, metadata: PartitionMetadata | None, existing: Collection[TopicName]
    ) -> JsonObject:
        if not topic.persistent:
            return {}
        if metadata is None:
            return await self.admin.internal_info(topic, answered_retry_seconds=_ANSWERED_RETRY_SECONDS)
        seconds, parts = _ANSWERED_RETRY_SECONDS, topic.partitions(metadata.partitions)
        try:
            return await read_info(self.admin, topic, parts, existing, answered_retry_seconds=seconds)
        except Unavailable:
            # Partitions that were deleted after they were listed have the same answer as unreadable ones.
            listed = await self.admin.topics(topic.namespace)
            if {*existing} - {*listed}:
                return await read_info(self.admin, topic, parts, listed, answered_retry_seconds=seconds)
            raise

    async def _beyond(self, partitions: Collection[TopicName], existing: Collection[TopicName]) -> list[Row]:
        """Rows of plain topics that are named like partitions which the partitioned topic does not have."""
        surplus = sorted({*existing} - {*partitions})
        rows_of_topics = await asyncio.gather(*(self._topic(topic, None) for topic in surplus))
        return [row for rows in rows_of_topics for row in rows]

    async def _with_properties(
        self, topic: TopicName, subscriptions: Sequence[SubscriptionState], partitioned: bool
    ) -> tuple[SubscriptionState, ...]:
        """Each with its properties and its ranges of acknowledgments on its own topic or partition."""
        places = dict.fromkeys(state.partition for state in subscriptions)
        documents = await self.reads.read(
            f"{SUBSCRIPTION_PROPERTIES_OF}{topic}", self._stats(topic, places, partitioned)
        )
        statistics = {
            (place, name): subscription
            for place, document in (documents or {}).items()
            for name, subscription in TopicStats.of(TopicName.parse(place), document).subscriptions.items()
        }
        return tuple(
            replace(state, properties=dict(read.properties), acknowledged_ranges=read.acknowledged_ranges)
            if (read := statistics.get((state.partition, state.name)))
            else state
            for state in subscriptions
        )

    async def _stats(self, topic: TopicName, places: Iterable[str], partitioned: bool) -> dict[str, JsonObject]:
        """Partition, or topic without partitions → its `stats`. One call; one more for each that the answer lacks."""
        seconds = _ANSWERED_RETRY_SECONDS
        documents: dict[str, JsonObject] = {}
        if partitioned:
            path = f"/{topic.path}/partitioned-stats"
            answer = await self.admin.get(path, answered_retry_seconds=seconds, perPartition=True)
            documents = answer.get("partitions") or {}
        # The broker leaves out a partition that it cannot load.
        for place in places:
            if place not in documents:
                documents[place] = await self.admin.stats(
                    TopicName.parse(place), precise=False, answered_retry_seconds=seconds
                )
        return documents

    async def _is_gone(self, topic: TopicName) -> bool:
        """Whether no list of the namespace has the topic any more; one without partitions is in one list only."""
        try:
            listed = await self.admin.topics(topic.namespace)
            return topic not in listed and topic not in await read_partitioned(self.admin, topic.namespace)
        except FleetError as error:
            return isinstance(error, NotFound)

    async def _is_namespace_gone(self, name: NamespaceName) -> bool:
        try:
            return name not in await self.admin.namespaces(name.tenant)
        except FleetError as error:
            return isinstance(error, NotFound)


def original_state(record: NamespaceOverrides, state: TopicPolicyState) -> TopicPolicyState:
    """Policies of a topic with their original values: a run overrides local policies only."""
    if state.scope != Scope.LOCAL:
        return state
    return replace(state, policies=record.original_topic_policies(state.topic, state.policies))
