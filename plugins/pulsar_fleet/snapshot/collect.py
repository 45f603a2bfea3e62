"""Read the metadata of a cluster and pass it to a sink in batches; no call loads a topic unless `load_topics` is set.

Without it the properties of subscriptions are unknown. Reading a namespace makes a broker own its unowned bundles, and
that broker may load their topics by itself.

Calls: a fixed number for the cluster and each broker, six for a namespace, two for a topic, three for a partitioned
topic; three more for a namespace with functions, and for every namespace where brokers offer packages; one more for
each where a broker is of Pulsar 5.0 or later. Topic policies are read over the messaging protocol, one pass for a
namespace. An earlier snapshot saves no call, because the admin API does not tell when a document changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import CLUSTERS, NAMESPACES_OF, Area, PartialReads, in_order
from pulsar_fleet.cluster.errors import NotAllowed, NotFound
from pulsar_fleet.cluster.names import SYSTEM_TENANT, NamespaceName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.overrides import NamespaceOverrides, overrides_in
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.cluster_reader import read_brokers, read_clusters, read_resource_groups, read_tenant
from pulsar_fleet.snapshot.inventory import (
    read_clients,
    read_dynamic_settings,
    read_functions,
    read_packages,
    read_scalable_topics,
)
from pulsar_fleet.snapshot.model import TABLES, Row, Snapshot, SnapshotHeader, TenantState
from pulsar_fleet.snapshot.namespace_reader import NamespaceContents, NamespaceReader
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

PUBLIC_DEFAULT = NamespaceName("public", "default")
# How many namespaces, and how many groups of topics, are read ahead of the rows that the sink has.
_AHEAD = 32
_TOPICS_AT_ONCE = 200

RowsJob = Callable[[], Awaitable[Sequence[Row]]]
ContentsJob = Callable[[], Awaitable[NamespaceContents | None]]


class SnapshotSink(Protocol):
    """Receives a snapshot in batches, so that memory need not hold all of it."""

    def add(self, rows: Sequence[Row]) -> None:
        """Receive rows; those of one table are ordered by namespace, then by name."""


async def collect(
    admin: AdminClient,
    selection: Selection | None = None,
    *,
    redactor: Redactor,
    must_exist: bool = False,
    load_topics: bool = False,
) -> Snapshot:
    """The whole snapshot as one value; parameters and errors are those of `collect_into`."""
    rows = _Rows()
    head = await collect_into(rows, admin, selection, redactor=redactor, must_exist=must_exist, load_topics=load_topics)
    return Snapshot(**asdict(head), **rows.tables())


async def collect_into(
    sink: SnapshotSink,
    admin: AdminClient,
    selection: Selection | None = None,
    *,
    redactor: Redactor,
    must_exist: bool = False,
    load_topics: bool = False,
) -> SnapshotHeader:
    """Read the selected tenants and namespaces with their contents, and the cluster with every broker.

    A resource that is deleted meanwhile is noted; one that cannot be read makes the snapshot incomplete; what only a
    superuser may read is noted as hidden from another role.

    :param redactor: replaces secrets by fingerprints before anything leaves this function.
    :param must_exist: raise `NotFound` for a selected tenant or namespace that does not exist.
    :param load_topics: also read the properties of subscriptions: one call for each topic that has one; it loads them.
    :raises PermissionDenied: the cluster does not accept our credentials, or our role may not list the tenants and
        none is selected.
    :raises Unavailable: the cluster no longer answers.
    """
    async with TopicPolicyReader(admin, redactor) as policies:
        reads = PartialReads()
        reader = NamespaceReader(admin, redactor, policies, reads, load_topics=load_topics)
        collector = _Collector(sink, admin, selection or Selection(), redactor, reader, reads)
        return await collector.run(must_exist=must_exist, load_topics=load_topics)


@dataclass
class _Collector:
    sink: SnapshotSink
    admin: AdminClient
    selection: Selection
    redactor: Redactor
    reader: NamespaceReader
    reads: PartialReads
    records: dict[str, list[NamespaceOverrides]] = field(default_factory=dict)
    """Tenant → what runs override in its namespaces."""
    with_scalable_topics: frozenset[str] = frozenset()
    """The namespaces that have some."""

    async def run(self, *, must_exist: bool, load_topics: bool) -> SnapshotHeader:
        began, calls = _now(), self.admin.calls
        cluster = await self.admin.cluster_name()
        tenants, namespaces = await self._read_tenants()
        if must_exist and (absent := self.selection.absent((tenant.name for tenant in tenants), namespaces)):
            raise NotFound(f"{cluster} has no {', '.join(absent)}: check the selection.", cluster=cluster)
        known_clusters = await self._read_cluster(namespaces)
        await self._read_namespaces(namespaces)
        self._emit([self._without_overrides(tenant) for tenant in tenants])
        head = SnapshotHeader(
            cluster=cluster,
            began=began,
            ended=_now(),
            key_id=self.redactor.key_id,
            selection=self.selection.texts(),
            known_clusters=known_clusters,
            calls=self.admin.calls - calls,
            loaded_topics=load_topics,
        )
        log.info("%s: %d namespaces read in %d calls", cluster, len(namespaces), head.calls)
        return head

    async def _read_tenants(self) -> tuple[list[TenantState], list[NamespaceName]]:
        """The selected tenants and the names of their selected namespaces, both in order."""
        answers = await asyncio.gather(*(self._tenant(name) for name in await self._tenant_names()))
        tenants = [tenant for tenant, _ in answers if tenant is not None]
        return tenants, sorted((namespace for _, chosen in answers for namespace in chosen), key=str)

    async def _tenant_names(self) -> list[str]:
        try:
            return [name for name in await self.admin.tenants() if self.selection.has_tenant(name)]
        except NotAllowed as error:
            # The administrator of a tenant may read that tenant, but not list all tenants.
            named = self.selection.named_tenants
            if named is None:
                raise NotAllowed(
                    f"{self.admin.connection.name}: our role may not list the tenants: name tenants or namespaces "
                    "in the selection.",
                    cluster=error.cluster,
                    status=error.status,
                ) from error
            self.reads.hide(Area.TENANTS, str(error))
            return sorted(named)

    async def _tenant(self, name: str) -> tuple[TenantState | None, list[NamespaceName]]:
        answer = await read_tenant(self.admin, name, self.reads, listing=f"{NAMESPACES_OF}{name}")
        if answer is None:
            return None, []
        tenant, namespaces = answer
        chosen = [namespace for namespace in namespaces if self.selection.has(namespace)]
        # Include the tenant of a named namespace that does not exist yet: the plan that creates it depends on it.
        selects_all = self.selection.everything and name != SYSTEM_TENANT
        if chosen or selects_all or name in (self.selection.named_tenants or ()):
            return tenant, chosen
        return None, []

    async def _read_cluster(self, namespaces: Sequence[NamespaceName]) -> tuple[str, ...]:
        """Read all that belongs to no namespace, and the inventory; returns the names of the known clusters."""
        admin, reads = self.admin, self.reads
        known_clusters = await reads.read(CLUSTERS, admin.clusters()) or ()
        clusters, groups, brokers = await asyncio.gather(
            read_clusters(admin, known_clusters, self.redactor, reads),
            read_resource_groups(admin, reads),
            read_brokers(admin, self.redactor, reads),
        )
        dynamic, clients, functions, packages, scalable = await asyncio.gather(
            read_dynamic_settings(admin, self.redactor, reads),
            read_clients(admin, brokers, reads),
            read_functions(admin, namespaces, reads),
            read_packages(admin, brokers, namespaces, reads),
            read_scalable_topics(admin, brokers, namespaces, reads),
        )
        self.with_scalable_topics = frozenset(state.namespace for state in scalable)
        selected = {str(name) for name in namespaces}
        inventory = (state for state in (*clients, *functions, *packages, *scalable) if state.namespace in selected)
        ordered = sorted((*dynamic, *inventory), key=lambda state: (state.namespace, state.kind, state.name))
        self._emit([*clusters, *groups, *brokers, *ordered])
        return known_clusters

    async def _read_namespaces(self, names: Sequence[NamespaceName]) -> None:
        async with aclosing(in_order(self._row_jobs(names), _AHEAD)) as batches:
            async for rows in batches:
                self._emit(rows)
        # A failed read at the end leaves a note and no rows.
        self._emit(())

    async def _row_jobs(self, names: Sequence[NamespaceName]) -> AsyncGenerator[RowsJob, None]:
        """The reads of each namespace, in order: its topics in groups, then their policies."""
        async with aclosing(in_order(self._contents(names), _AHEAD)) as read:
            async for contents in read:
                if contents is None or self._is_unused(contents):
                    continue
                if record := overrides_in(contents.state.policies):
                    self.records.setdefault(contents.name.tenant, []).append(record)
                self._emit([contents.state, *contents.system])
                for first in range(0, len(contents.topics), _TOPICS_AT_ONCE):
                    group = contents.topics[first : first + _TOPICS_AT_ONCE]
                    yield partial(self.reader.topics, group, contents.partitioned)
                yield partial(self.reader.topic_policies, contents)

    async def _contents(self, names: Sequence[NamespaceName]) -> AsyncGenerator[ContentsJob, None]:
        for name in names:
            yield partial(self.reader.contents, name)

    def _without_overrides(self, tenant: TenantState) -> TenantState:
        """The tenant as it is without what runs override; their records are in its namespaces."""
        for record in self.records.get(tenant.name, ()):
            tenant = replace(tenant, allowed_clusters=tuple(sorted(record.original_clusters(tenant.allowed_clusters))))
        return tenant

    def _is_unused(self, contents: NamespaceContents) -> bool:
        used = contents.topics or str(contents.name) in self.with_scalable_topics or self.selection.names(contents.name)
        return contents.name == PUBLIC_DEFAULT and not used

    def _emit(self, rows: Sequence[Row]) -> None:
        self.sink.add(rows)
        if notes := self.reads.take_notes():
            self.sink.add(notes)


class _Rows:
    """A sink that keeps all rows in memory."""

    def __init__(self) -> None:
        self._tables: dict[type, list[Row]] = {kind: [] for kind in TABLES.values()}

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._tables[type(row)].append(row)

    def tables(self) -> dict[str, Any]:
        return {table: tuple(self._tables[kind]) for table, kind in TABLES.items()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
