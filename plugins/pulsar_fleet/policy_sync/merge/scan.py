"""Scan one cluster, its tenants, namespaces and topics: a call a namespace, two a tenant, few a broker (client)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import ClockSkew, measure_clock_skew
from pulsar_fleet.cluster.admin.partial_reads import (
    PARTITIONED_TOPICS_OF,
    SCHEMAS_OF,
    TOPIC_POLICIES_OF,
    Area,
    Note,
    PartialReads,
    Problem,
)
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import SHADOW_SOURCE, SYSTEM_TENANT, NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.overrides import overrides_in
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.fields import is_synchronised
from pulsar_fleet.policy_sync.merge.provenance import PolicyEvents
from pulsar_fleet.policy_sync.merge.view import Item, tenant_and_namespace
from pulsar_fleet.snapshot.cluster_reader import read_brokers, read_tenant, tenant_names
from pulsar_fleet.snapshot.collect import PUBLIC_DEFAULT
from pulsar_fleet.snapshot.model import (
    BrokerState,
    NamespaceState,
    SchemaState,
    Snapshot,
    TenantState,
    TopicPolicyState,
    TopicState,
)
from pulsar_fleet.snapshot.resources import read_namespace, read_partitioned, schema_state
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

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


async def read_tenants(
    admin: AdminClient, selection: Selection, partial_reads: PartialReads
) -> tuple[list[TenantState], list[NamespaceName]]:
    """The selected tenants, two calls for each, and the names of their selected namespaces."""
    names = await tenant_names(admin, selection)
    if selection.named_tenants is None:
        names = [name for name in names if name != SYSTEM_TENANT]
    answers = await asyncio.gather(*(read_tenant(admin, name, partial_reads, listing=name) for name in names))
    tenants = [answer for answer in answers if answer is not None]
    chosen = [namespace for _, namespaces in tenants for namespace in namespaces if selection.has(namespace)]
    unnamed = {PUBLIC_DEFAULT} if not selection.names(PUBLIC_DEFAULT) else set()
    return [tenant for tenant, _ in tenants], [namespace for namespace in chosen if namespace not in unnamed]


async def read_namespaces(
    admin: AdminClient, names: Sequence[NamespaceName], redactor: Redactor, partial_reads: PartialReads
) -> list[NamespaceState]:
    """The policies of these namespaces without local settings: one call for each."""

    async def read(name: NamespaceName) -> NamespaceState | None:
        document = await partial_reads.read(str(name), read_namespace(admin, name, redactor, local=False))
        return None if document is None else NamespaceState(str(name), document)

    return [state for state in await asyncio.gather(*map(read, names)) if state is not None]


_PASSES_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterScan:
    """The result of one scan of a cluster.

    :param snapshot: brokers, tenants, namespaces without local settings, partitioned topics, topic policies.
    :param began: in seconds since 1970 by our clock; `ended` likewise.
    :param events: namespace → the events of its topic policies.
    :param topics: namespace → its topics, for the namespaces given to `list_topics`.
    """

    snapshot: Snapshot
    clock: ClockSkew
    began: float
    ended: float
    calls: int
    events: dict[str, PolicyEvents]
    topics: dict[str, frozenset[str]]

    @property
    def migrated(self) -> frozenset[str]:
        """The namespaces that the cluster marks as migrated, or in which a run overrides policies."""
        flagged = (state.name for state in self.snapshot.namespaces if state.policies.get("migrated"))
        return frozenset(flagged) | self.overridden

    @property
    def overridden(self) -> frozenset[str]:
        """The namespaces in which a run overrides policies: nothing may be written to them."""
        return frozenset(state.name for state in self.snapshot.namespaces if overrides_in(state.policies))

    @property
    def shadows(self) -> frozenset[str]:
        """The shadow topics: each shares the ledgers of a topic of its own cluster, so it takes no part."""
        return frozenset(state.name for state in self.snapshot.topics if SHADOW_SOURCE in state.properties)

    @property
    def unread(self) -> frozenset[str]:
        """The resources that exist and could not be read, or that are hidden from our role."""
        failures = (Problem.UNREADABLE, Problem.HIDDEN)
        return frozenset(note.resource for note in self.snapshot.notes if note.problem in failures) - set(Area)


async def scan_cluster(
    admin: AdminClient, selection: Selection, redactor: Redactor, *, topics: bool, partitioned: bool = False
) -> ClusterScan:
    """Read the selected resources of one cluster.

    :param topics: also read topic policies: one pass over the events of each namespace, no call.
    :param partitioned: also read partitioned topics: one call for each namespace, and two for each topic.
    :raises Unavailable: the cluster does not answer.
    :raises PermissionDenied: the cluster denies the reads.
    """
    scanner = await _Scanner.begin(admin, redactor, None)
    tenants, names = await read_tenants(admin, selection, scanner.partial_reads)
    namespaces = await read_namespaces(admin, names, redactor, scanner.partial_reads)
    async with TopicPolicyReader(admin, redactor) as reader:
        policies = await scanner.policies(namespaces, reader) if topics else []
    partitioned_topics = await scanner.partitioned_topics(namespaces) if partitioned else []
    return scanner.end(selection.texts(), tenants, namespaces, policies, partitioned_topics)


async def scan_in_parts(
    admin: AdminClient,
    selection: Selection,
    redactor: Redactor,
    *,
    topics: bool,
    partitioned: bool,
    earlier: ClusterScan | None = None,
    most: int = 100,
) -> AsyncGenerator[ClusterScan, None]:
    """Like `scan_cluster`, in parts of `most` namespaces; each part has all tenants.

    Only the last part has no namespace. A resource that is in no part and not among the unread resources of the last
    part does not exist. Close the generator if you do not read it to the end.

    :param earlier: a recent scan; its brokers, clock and known clusters are reused.
    """
    scanner = await _Scanner.begin(admin, redactor, earlier)
    tenants, names = await read_tenants(admin, selection, scanner.partial_reads)
    async with TopicPolicyReader(admin, redactor) as reader:
        for first in range(0, len(names), most):
            namespaces = await read_namespaces(admin, names[first : first + most], redactor, scanner.partial_reads)
            policies = await scanner.policies(namespaces, reader) if topics else []
            partitioned_topics = await scanner.partitioned_topics(namespaces) if partitioned else []
            if namespaces:
                yield scanner.end((), tenants, namespaces, policies, partitioned_topics)
    yield scanner.end(selection.texts(), tenants, (), (), ())


async def scan_items(
    admin: AdminClient, items: Collection[Item], redactor: Redactor, earlier: ClusterScan
) -> ClusterScan:
    """Read some resources: one call per namespace, two per tenant; topics only for topics and their policies.

    :param earlier: a recent scan; its brokers, clock and known clusters are reused.
    :raises Unavailable: the cluster does not answer.
    """
    scanner = await _Scanner.begin(admin, redactor, earlier)
    tenant_list = sorted(name for kind, name in items if kind is Resource.TENANT)
    answers = await asyncio.gather(
        *(read_tenant(admin, name, scanner.partial_reads, listing=name) for name in tenant_list)
    )
    tenants = [answer[0] for answer in answers if answer is not None]
    names = sorted({tenant_and_namespace(item)[1] for item in items} - {""})
    namespaces = await read_namespaces(admin, list(map(NamespaceName.parse, names)), redactor, scanner.partial_reads)
    named = {kind: {name for of, name in items if of is kind} for kind in (Resource.TOPIC, Resource.TOPIC_POLICY)}
    within = {kind: {tenant_and_namespace((kind, name))[1] for name in names} for kind, names in named.items()}
    async with TopicPolicyReader(admin, redactor) as reader:
        policies = await scanner.policies(_of(namespaces, within[Resource.TOPIC_POLICY]), reader)
    topics = await scanner.partitioned_topics(_of(namespaces, within[Resource.TOPIC]), named[Resource.TOPIC])
    observed = scanner.end((), tenants, namespaces, policies, topics)
    return await list_topics(admin, observed, {state.name for state in _of(namespaces, set().union(*within.values()))})


def _of(namespaces: Iterable[NamespaceState], names: Collection[str]) -> list[NamespaceState]:
    return [namespace for namespace in namespaces if namespace.name in names]


async def list_topics(admin: AdminClient, observed: ClusterScan, namespaces: Iterable[str]) -> ClusterScan:
    """Add the topics of some namespaces: three calls per namespace that is not listed yet."""
    new, calls = sorted(set(namespaces) - set(observed.topics)), admin.calls
    topics = await asyncio.gather(*(read_topic_names(admin, NamespaceName.parse(name)) for name in new))
    listed = dict(zip(new, topics, strict=True))
    return replace(observed, topics={**observed.topics, **listed}, calls=observed.calls + admin.calls - calls)


@dataclass(kw_only=True)
class _Scanner:
    """A scan in progress."""

    admin: AdminClient
    own: str
    redactor: Redactor
    partial_reads: PartialReads
    began: float
    calls: int
    clock: ClockSkew
    brokers: Sequence[BrokerState]
    known_clusters: tuple[str, ...]
    events: dict[str, PolicyEvents] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @classmethod
    async def begin(cls, admin: AdminClient, redactor: Redactor, earlier: ClusterScan | None) -> Self:
        began, calls, partial_reads = time.time(), admin.calls, PartialReads()
        return cls(
            admin=admin,
            own=await admin.cluster_name(),
            redactor=redactor,
            partial_reads=partial_reads,
            began=began,
            calls=calls,
            clock=earlier.clock if earlier else await measure_clock_skew(admin),
            brokers=earlier.snapshot.brokers if earlier else await read_brokers(admin, redactor, partial_reads),
            known_clusters=earlier.snapshot.known_clusters if earlier else await admin.clusters(),
        )

    async def policies(self, namespaces: Sequence[NamespaceState], reader: TopicPolicyReader) -> list[TopicPolicyState]:
        """The topic policies of some namespaces; their times are added to `events`.

        Namespaces in which a run overrides policies are not compared, so they are as the topics have them.
        """
        slots = asyncio.Semaphore(_PASSES_AT_ONCE)

        async def read(name: str) -> Sequence[TopicPolicyState]:
            self.events[name] = PolicyEvents()
            await self.admin.wait_for_rate_limit()
            async with slots:
                answer = reader.read(NamespaceName.parse(name), history=self.events[name])
                return await self.partial_reads.read(f"{TOPIC_POLICIES_OF}{name}", answer) or ()

        states = await asyncio.gather(*(read(namespace.name) for namespace in namespaces))
        return [state for part in states for state in part]

    async def partitioned_topics(
        self, namespaces: Iterable[NamespaceState], only: Collection[str] | None = None
    ) -> list[PartitionedTopic]:
        """The partitioned topics of some namespaces; None as `only` means all of them."""
        names = (NamespaceName.parse(namespace.name) for namespace in namespaces)
        reads = (read_partitioned_topics(self.admin, name, self.partial_reads, only) for name in names)
        return [topic for part in await asyncio.gather(*reads) for topic in part]

    def end(
        self,
        selection: tuple[str, ...],
        tenants: Sequence[TenantState],
        namespaces: Sequence[NamespaceState],
        policies: Sequence[TopicPolicyState],
        topics: Sequence[PartitionedTopic],
    ) -> ClusterScan:
        self.notes += self.partial_reads.take_notes()
        snapshot = Snapshot(
            cluster=self.own,
            began="",
            ended="",
            key_id=self.redactor.key_id,
            selection=selection,
            known_clusters=self.known_clusters,
            brokers=tuple(self.brokers),
            tenants=tuple(tenants),
            namespaces=tuple(namespaces),
            topics=tuple(state for state, _ in topics),
            schemas=tuple(schema for _, schemas in topics for schema in schemas),
            topic_policies=tuple(policies),
            notes=tuple(self.notes),
        )
        return ClusterScan(
            snapshot=snapshot,
            clock=self.clock,
            began=self.began,
            ended=time.time(),
            calls=self.admin.calls - self.calls,
            events=self.events,
            topics={},
        )
