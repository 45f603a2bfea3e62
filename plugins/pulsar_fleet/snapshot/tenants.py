"""The tenants of a cluster and the names of their namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.snapshot.model import TenantState


async def tenant_names(admin: AdminClient, selection: Selection) -> list[str]:
    """The tenants that the selection may include, sorted: one call, or none where the selection names them."""
    named = selection.named_tenants
    return sorted(await admin.tenants() if named is None else named)


async def list_namespaces(
    admin: AdminClient, tenants: Iterable[str], *, unknown: tuple[type[FleetError], ...] = ()
) -> dict[str, tuple[NamespaceName, ...] | None]:
    """Tenant → its namespaces: one call for each.

    :param unknown: failures that give None for a tenant; all others are raised.
    """

    async def namespaces(tenant: str) -> tuple[NamespaceName, ...] | None:
        try:
            return await admin.namespaces(tenant)
        except unknown:
            return None

    names = list(tenants)
    return dict(zip(names, await asyncio.gather(*map(namespaces, names)), strict=True))


async def read_tenant(
    admin: AdminClient, name: str, reads: PartialReads, *, listing: str
) -> tuple[TenantState, tuple[NamespaceName, ...]] | None:
    """A tenant and its namespaces: two calls; None, and a note, if the tenant cannot be read.

    :param listing: name of the list of its namespaces in a note; a list that cannot be read is returned as empty.
    """
    document = await reads.read(name, admin.tenant(name))
    if document is None:
        return None
    namespaces = await reads.read(listing, admin.namespaces(name)) or ()
    roles, clusters = document.get("adminRoles") or (), document.get("allowedClusters") or ()
    return TenantState(name, tuple(sorted(roles)), tuple(sorted(clusters))), namespaces


async def require_namespaces(admin: AdminClient, namespaces: Iterable[NamespaceName]) -> None:
    """Refuse a namespace that the cluster does not have, with the names that it has; one call for each."""
    for namespace in namespaces:
        if await admin.namespace(namespace) is None:
            raise NotFound(await _no_such_namespace(admin, namespace, await admin.cluster_name()))


async def _no_such_namespace(admin: AdminClient, namespace: NamespaceName, cluster: str) -> str:
    if await admin.tenant(namespace.tenant) is None:
        existing = listed(await admin.tenants(), 10)
        return f"Namespace {str(namespace)!r} does not exist on {cluster}. The tenants of {cluster} are: {existing}."
    existing = listed(await admin.namespaces(namespace.tenant), 10)
    return (
        f"Namespace {str(namespace)!r} does not exist on {cluster}. Tenant {namespace.tenant!r} contains: {existing}."
    )
