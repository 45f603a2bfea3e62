"""Read the selected tenants and namespaces of one cluster (client)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.names import SYSTEM_TENANT, NamespaceName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.collect import PUBLIC_DEFAULT
from pulsar_fleet.snapshot.model import NamespaceState, TenantState
from pulsar_fleet.snapshot.resources import read_namespace
from pulsar_fleet.snapshot.tenants import read_tenant, tenant_names


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
