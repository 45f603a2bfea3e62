"""Read what a cluster holds, and hand it on in pieces; no topic is asked what loads it unless that is wished for.

A bundle that no broker owned is taken by one, though, when its namespace is read, and that broker may load its topics.

Calls: a fixed number for the cluster and each broker, six for a namespace, two for a topic, three for a partitioned
one; three more for a namespace where functions run, and for each where brokers offer packages. Topic policies come
over the messaging protocol, one pass for a namespace. Nothing is taken over from an earlier snapshot: the admin API
says of no document when it changed, so that something is unchanged is only known once it was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads, in_order
from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.cluster.errors import NotAllowed, NotFound
from pulsar_fleet.cluster.names import BROKERS_TENANT, NamespaceName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.cluster_reader import read_brokers, read_clusters, read_resource_groups
from pulsar_fleet.snapshot.inventory import read_clients, read_functions, read_packages
from pulsar_fleet.snapshot.model import TABLES, Row, Snapshot, SnapshotHead, TenantState
from pulsar_fleet.snapshot.namespace_reader import Contents, NamespaceReader
from pulsar_fleet.snapshot.tenants import read_tenant
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

PUBLIC_DEFAULT = NamespaceName("public", "default")
# What is read ahead of what was handed on: this many namespaces, and as many groups of topics.
_AHEAD = 32
_TOPICS_AT_ONCE = 200

Piece = Callable[[], Awaitable[Sequence[Row]]]
Head = Callable[[], Awaitable[Contents | None]]


class SnapshotSink(Protocol):
    """Takes a snapshot in pieces, so that none of it has to stay in memory."""

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows; those of one table come in the order of their namespaces, and of names within these."""


async def collect(
    admin: AdminClient,
    selection: Selection | None = None,
    *,
    seal: Redactor,
    must_exist: bool = False,
    load_topics: bool = False,
) -> Snapshot:
    """The whole snapshot as one value; parameters and errors are those of `collect_into`."""
    rows = _Rows()
    head = await collect_into(rows, admin, selection, seal=seal, must_exist=must_exist, load_topics=load_topics)
    return Snapshot(**asdict(head), **rows.tables())


async def collect_into(
    sink: SnapshotSink,
    admin: AdminClient,
    selection: Selection | None = None,
    *,
    seal: Redactor,
    must_exist: bool = False,
    load_topics: bool = False,
) -> SnapshotHead:
    """Read the selected tenants and namespaces with all that lies in them, and the cluster with every broker.

    What vanishes meanwhile is noted; what cannot be read makes the snapshot incomplete; what the cluster shows to
    superusers alone is noted as hidden when our role is none.

    :param seal: replaces secrets by fingerprints before anything leaves this function.
    :param must_exist: something selected that is not there is `NotFound`.
    :param load_topics: also read the properties of subscriptions, a call for each topic that has one; it loads them.
    :raises Denied: the cluster does not know us, or does not list its tenants for us and none is selected.
    :raises Transient: the cluster no longer answers.
    """
    async with TopicPolicyReader(admin, seal) as policies:
        attempts = PartialReads()
        reader = NamespaceReader(admin, seal, policies, attempts, load_topics=load_topics)
        collector = _Collector(sink, admin, selection or Selection(), seal, reader, attempts)
        return await collector.run(must_exist=must_exist, load_topics=load_topics)


class _Collector:
    def __init__(
        self,
        sink: SnapshotSink,
        admin: AdminClient,
        selection: Selection,
        seal: Redactor,
        reader: NamespaceReader,
        attempts: PartialReads,
    ) -> None:
        self._sink = sink
        self._admin = admin
        self._selection = selection
        self._seal = seal
        self._reader = reader
        self._attempts = attempts

    async def run(self, *, must_exist: bool, load_topics: bool) -> SnapshotHead:
        began, calls = _now(), self._admin.calls
        cluster = await self._admin.cluster_name()
        tenants, namespaces = await self._read_tenants()
        if must_exist and (absent := self._selection.absent((one.name for one in tenants), namespaces)):
            raise NotFound(f"{cluster} has no {', '.join(absent)}: check the selection.", cluster=cluster)
        self._hand_on(tenants)
        known = await self._read_cluster(namespaces)
        await self._read_namespaces(namespaces)
        head = SnapshotHead(
            cluster=cluster,
            began=began,
            ended=_now(),
            key_id=self._seal.key_id,
            selection=self._selection.texts(),
            known_clusters=known,
            calls=self._admin.calls - calls,
            loaded_topics=load_topics,
        )
        log.info("%s: %d namespaces read in %d calls", cluster, len(namespaces), head.calls)
        return head

    async def _read_tenants(self) -> tuple[list[TenantState], list[NamespaceName]]:
        """The selected tenants and the names of their selected namespaces, both in order."""
        found = await asyncio.gather(*(self._tenant(name) for name in await self._tenant_names()))
        tenants = [tenant for tenant, _ in found if tenant is not None]
        return tenants, sorted((one for _, chosen in found for one in chosen), key=str)

    async def _tenant_names(self) -> list[str]:
        try:
            return [name for name in await self._admin.tenants() if self._selection.has_tenant(name)]
        except NotAllowed as error:
            # The administrator of a tenant may read that tenant, and not the list of all.
            named = self._selection.named_tenants
            if named is None:
                raise NotAllowed(
                    f"{self._admin.connection.name}: our role may not list the tenants, so which there are is not "
                    "known: name tenants or namespaces in the selection.",
                    cluster=error.cluster,
                    status=error.status,
                ) from error
            self._attempts.hide(Area.TENANTS, str(error))
            return sorted(named)

    async def _tenant(self, name: str) -> tuple[TenantState | None, list[NamespaceName]]:
        answer = await read_tenant(self._admin, name, self._attempts, listing=f"namespaces of {name}")
        if answer is None:
            return None, []
        tenant, namespaces = answer
        chosen = [namespace for namespace in namespaces if self._selection.has(namespace)]
        # Also the tenant of a named namespace that is not there yet: who makes it must know that its tenant is.
        meant = name in (self._selection.named_tenants or ()) or (self._selection.everything and name != BROKERS_TENANT)
        if not chosen and not meant:
            return None, []
        return tenant, chosen

    async def _read_cluster(self, namespaces: Sequence[NamespaceName]) -> tuple[str, ...]:
        """Hand on all that lies in no namespace, and what is only counted; the names of the known clusters."""
        admin, attempts = self._admin, self._attempts
        known = await attempts.read("clusters", admin.clusters()) or ()
        clusters, groups, brokers = await asyncio.gather(
            read_clusters(admin, known, self._seal, attempts),
            read_resource_groups(admin, attempts),
            read_brokers(admin, self._seal, attempts),
        )
        clients, functions, packages = await asyncio.gather(
            read_clients(admin, brokers, attempts),
            read_functions(admin, namespaces, attempts),
            read_packages(admin, brokers, namespaces, attempts),
        )
        selected = {str(name) for name in namespaces}
        inventory = (one for one in (*clients, *functions, *packages) if one.namespace in selected)
        ordered = sorted(inventory, key=lambda one: (one.namespace, one.kind, one.name))
        self._hand_on([*clusters, *groups, *brokers, *ordered])
        return known

    async def _read_namespaces(self, names: Sequence[NamespaceName]) -> None:
        async with aclosing(in_order(self._pieces(names), _AHEAD)) as pieces:
            async for rows in pieces:
                self._hand_on(rows)
        # What could not be read at the end leaves a note and no piece.
        self._hand_on(())

    async def _pieces(self, names: Sequence[NamespaceName]) -> AsyncGenerator[Piece, None]:
        """What is to be read of each namespace, in order: its topics in groups, and their policies."""
        async with aclosing(in_order(self._contents(names), _AHEAD)) as read:
            async for contents in read:
                if contents is None or self._is_unused(contents):
                    continue
                self._hand_on([contents.state, *contents.system])
                for first in range(0, len(contents.topics), _TOPICS_AT_ONCE):
                    group = contents.topics[first : first + _TOPICS_AT_ONCE]
                    yield partial(self._reader.topics, group, contents.partitioned)
                yield partial(self._reader.topic_policies, contents.name)

    async def _contents(self, names: Sequence[NamespaceName]) -> AsyncGenerator[Head, None]:
        for name in names:
            yield partial(self._reader.contents, name)

    def _is_unused(self, found: Contents) -> bool:
        return found.name == PUBLIC_DEFAULT and not found.topics and not self._selection.names(found.name)

    def _hand_on(self, rows: Sequence[Row]) -> None:
        self._sink.add(rows)
        if notes := self._attempts.take_notes():
            self._sink.add(notes)


class _Rows:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self._kept: dict[type, list[Row]] = {kind: [] for kind in TABLES.values()}

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._kept[type(row)].append(row)

    def tables(self) -> dict[str, Any]:
        return {table: tuple(self._kept[kind]) for table, kind in TABLES.items()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
