"""Read the resources of a cluster outside of its namespaces: tenants, cluster data, resource groups, brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import BROKERS, Area, PartialReads
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.snapshot.model import BrokerState, ClusterDataState, ResourceGroupState, TenantState


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


async def read_clusters(
    admin: AdminClient, names: Iterable[str], redactor: Redactor, reads: PartialReads
) -> list[ClusterDataState]:
    """Addresses, failure domains and isolation policies of these clusters: three calls for each. Needs a superuser."""
    states = await asyncio.gather(*(_read_cluster(admin, name, redactor, reads) for name in names))
    return [state for state in states if state is not None]


async def read_resource_groups(admin: AdminClient, reads: PartialReads) -> list[ResourceGroupState]:
    """The resource groups with their limits: one call for each. Needs a superuser."""
    names = await reads.read("resource groups", admin.get("/resourcegroups"), area=Area.RESOURCE_GROUPS)
    read = (reads.read(f"resource group {name}", _read_group(admin, name)) for name in sorted(names or ()))
    return [state for state in await asyncio.gather(*read) if state is not None]


async def _read_cluster(
    admin: AdminClient, name: str, redactor: Redactor, reads: PartialReads
) -> ClusterDataState | None:
    data = await reads.read(f"cluster {name}", admin.cluster_data(name), area=Area.CLUSTERS)
    if data is None:
        return None
    path = f"/clusters/{quote(name, safe='')}"
    kinds = ("failureDomains", "namespaceIsolationPolicies")
    domains, isolation = [
        await reads.read(f"{kind} of {name}", _documents(admin, f"{path}/{kind}"), area=Area.ISOLATION) or {}
        for kind in kinds
    ]
    return ClusterDataState(name, redactor.redact(data), domains, isolation)


async def _documents(admin: AdminClient, path: str) -> JsonObject:
    # A cluster that never had an isolation policy answers 404.
    try:
        return dict(await admin.get(path) or {})
    except NotFound:
        return {}


async def _read_group(admin: AdminClient, name: str) -> ResourceGroupState:
    return ResourceGroupState(name, dict(await admin.get(f"/resourcegroups/{quote(name, safe='')}")))


async def read_brokers(admin: AdminClient, redactor: Redactor, reads: PartialReads) -> list[BrokerState]:
    """Version and configuration of every live broker, each asked at its own address. Needs a superuser.

    For another role the result is the broker that answers, without a configuration, and a note that the rest is hidden.
    """
    addresses = await reads.read(BROKERS, admin.brokers(), area=Area.BROKERS)
    if addresses is None:
        return [BrokerState(urlsplit(admin.http.admin_url).netloc, await admin.version(), {})]
    read = (reads.read(f"broker {address}", _read_broker(admin, address, redactor)) for address in addresses)
    return [state for state in await asyncio.gather(*read) if state is not None]


async def _read_broker(admin: AdminClient, address: str, redactor: Redactor) -> BrokerState:
    version = await admin.version(address)
    return BrokerState(address, version, redactor.redact(await admin.runtime_configuration(address)))
