"""The tenants of a cluster and the names of their namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.snapshot.model import TenantState


async def tenant_names(admin: AdminClient, selection: Selection) -> list[str]:
    """The tenants of all that is selected, in order: one call, and none where the selection names them."""
    named = selection.named_tenants
    return sorted(await admin.tenants() if named is None else named)


async def list_namespaces(
    admin: AdminClient, tenants: Iterable[str], *, unknown: tuple[type[FleetError], ...] = ()
) -> dict[str, tuple[NamespaceName, ...] | None]:
    """Tenant → its namespaces; a call each.

    :param unknown: failures for which it is None; any other is raised.
    """

    async def namespaces(tenant: str) -> tuple[NamespaceName, ...] | None:
        try:
            return await admin.namespaces(tenant)
        except unknown:
            return None

    names = list(tenants)
    return dict(zip(names, await asyncio.gather(*map(namespaces, names)), strict=True))


async def read_tenant(
    admin: AdminClient, name: str, attempts: PartialReads, *, listing: str
) -> tuple[TenantState, tuple[NamespaceName, ...]] | None:
    """A tenant and its namespaces by two calls; None with a note if it cannot be read.

    :param listing: what a note calls the list of its namespaces, which counts as empty if it cannot be read.
    """
    document = await attempts.read(name, admin.tenant(name))
    if document is None:
        return None
    namespaces = await attempts.read(listing, admin.namespaces(name)) or ()
    roles, clusters = document.get("adminRoles") or (), document.get("allowedClusters") or ()
    return TenantState(name, tuple(sorted(roles)), tuple(sorted(clusters))), namespaces
