"""What every runbook on two clusters checks first."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_fleet.airflow.connection import cluster_connection
from pulsar_fleet.airflow.request import refuse_same_cluster
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Missing
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName


async def require_two_clusters(source: str, target: str, namespaces: Sequence[NamespaceName]) -> JsonObject:
    """Read both clusters' own names; refuse one cluster under two connections, and namespaces that the source lacks."""
    first, second = cluster_connection(source), cluster_connection(target)
    async with AdminClient(first) as at_source, AdminClient(second) as at_target:
        names = (await at_source.cluster_name(), await at_target.cluster_name())
        refuse_same_cluster(source, target, names)
        for namespace in namespaces:
            if await at_source.namespace(namespace) is None:
                raise Missing(await _no_such_namespace(at_source, namespace, names[0]))
    return {"source": names[0], "target": names[1]}


async def _no_such_namespace(admin: AdminClient, namespace: NamespaceName, cluster: str) -> str:
    if await admin.tenant(namespace.tenant) is None:
        known = ", ".join(await admin.tenants())
        return f"Namespace {str(namespace)!r} does not exist on {cluster}, which has the tenants: {known}."
    known = ", ".join(str(one) for one in await admin.namespaces(namespace.tenant)) or "none"
    return f"Namespace {str(namespace)!r} does not exist on {cluster}. Tenant {namespace.tenant!r} has: {known}."
