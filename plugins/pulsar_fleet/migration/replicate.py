"""Copy what is stored on blue to green by geo-replication, from the first message on, one way."""

from __future__ import annotations

from collections.abc import Collection

from pulsar_fleet.change.hazards import guard_cluster_lists
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.call import with_body
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Missing
from pulsar_fleet.cluster.names import NamespaceName


async def introduce(blue: AdminClient, name: str, green: ClusterConnection) -> bool:
    """Make green known to blue as a cluster, under its own name; True if it was not yet. Existing data stays."""
    if await blue.cluster_data(name) is not None:
        return False
    secure = green.admin_url.startswith("https:")
    await blue.put_cluster(
        name,
        {
            "serviceUrlTls" if secure else "serviceUrl": green.admin_url,
            "brokerServiceUrlTls" if secure else "brokerServiceUrl": green.require_service_url(),
            "brokerClientTlsEnabled": secure,
            **({"brokerClientTrustCertsFilePath": green.tls_trust_file} if green.tls_trust_file and secure else {}),
        },
    )
    return True


async def allow_cluster(blue: AdminClient, tenant: str, cluster: str) -> bool:
    """Let the tenant's namespaces on blue replicate to `cluster`; True if that had to be added."""
    found = await blue.tenant(tenant)
    if found is None:
        raise Missing(f"Tenant {tenant!r} does not exist on {blue.connection.name}.")
    allowed = list(found.get("allowedClusters") or [])
    if cluster in allowed:
        return False
    await blue.post(f"/tenants/{tenant}", {**found, "allowedClusters": [*allowed, cluster]})
    return True


async def begin_replication(blue: AdminClient, own: str, namespace: NamespaceName, cluster: str) -> bool:
    """Add `cluster` to those that the namespace replicates to from blue; True if it was not among them."""
    current = await _clusters(blue, namespace)
    return await _set(blue, own, namespace, current, {*current, own, cluster})


async def end_replication(
    blue: AdminClient, own: str, namespace: NamespaceName, cluster: str, before: Collection[str]
) -> bool:
    """Take `cluster` out again, unless the namespace replicated to it before; True if it was among them.

    Whatever else was added or removed meanwhile stays. Blue's own name stays always, or blue would delete the topics.
    """
    if cluster in before:
        return False
    current = await _clusters(blue, namespace)
    return await _set(blue, own, namespace, current, {*current} - {cluster})


async def _clusters(blue: AdminClient, namespace: NamespaceName) -> list[str]:
    return list((await blue.namespace(namespace) or {}).get("replication_clusters") or [])


async def _set(
    blue: AdminClient, own: str, namespace: NamespaceName, current: Collection[str], wanted: Collection[str]
) -> bool:
    if {*current} == {*wanted}:
        return False
    call = with_body("POST", f"/namespaces/{namespace.path}/replication", sorted(wanted))
    guard_cluster_lists(call, own)
    await blue.post(call.path, call.body)
    return True
