"""Scan one cluster: one call per namespace, two per tenant, a fixed number per broker (client)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import ClockSkew, measure_clock_skew
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import TOPIC_POLICIES_OF, Area, Note, Problem
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.overrides import overrides_in
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.namespace_scan import read_namespaces, read_tenants
from pulsar_fleet.policy_sync.merge.provenance import PolicyEvents
from pulsar_fleet.policy_sync.merge.topic_scan import PartitionedTopic, read_partitioned_topics, read_topic_names
from pulsar_fleet.policy_sync.merge.view import Item, tenant_and_namespace
from pulsar_fleet.snapshot.cluster_reader import read_brokers
from pulsar_fleet.snapshot.model import BrokerState, NamespaceState, Snapshot, TenantState, TopicPolicyState
from pulsar_fleet.snapshot.tenants import read_tenant
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

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
