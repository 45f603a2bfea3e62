"""Copy what is stored on blue to green by geo-replication, from the first message on, one way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_fleet.change.hazards import guard_cluster_lists
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.call import with_body
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Missing
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.facts import PartitionFacts
from pulsar_fleet.migration.survey import survey_partitions


@dataclass(frozen=True, slots=True)
class Lag:
    """How far replication is behind.

    :param entries: unsent entries over all partitions.
    :param unlinked: partitions without a link: absence is not success.
    """

    entries: int
    unlinked: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Every partition has a link and nothing to send."""
        return not (self.unlinked or self.entries)


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


async def set_replication(blue: AdminClient, own: str, namespace: NamespaceName, clusters: Sequence[str]) -> bool:
    """Set the namespace's replication list on blue; True if it differed. A list without blue itself is refused."""
    policies = await blue.namespace(namespace) or {}
    if sorted(policies.get("replication_clusters") or []) == sorted(clusters):
        return False
    call = with_body("POST", f"/namespaces/{namespace.path}/replication", list(clusters))
    guard_cluster_lists(call, own)
    await blue.post(call.path, call.body)
    return True


async def replication_lag(blue: AdminClient, cluster: str, partitions: Sequence[TopicName]) -> Lag:
    """How much of these partitions is still to be sent to `cluster`."""
    return lag_of(await survey_partitions(blue, partitions), cluster)


def lag_of(partitions: Sequence[PartitionFacts], cluster: str) -> Lag:
    """The lag that these statistics show."""
    return Lag(
        entries=sum(facts.replication_backlog.get(cluster, 0) for facts in partitions),
        unlinked=tuple(str(facts.topic) for facts in partitions if not facts.replication_connected.get(cluster)),
    )


async def wait_replicated(blue: AdminClient, cluster: str, partitions: Sequence[TopicName], seconds: float) -> Lag:
    """Wait for an empty lag, looking again every 50 ms; the last lag seen is returned, done or not."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    lag = await replication_lag(blue, cluster, partitions)
    while not lag.is_done and loop.time() < end:
        await asyncio.sleep(0.05)
        lag = await replication_lag(blue, cluster, partitions)
    return lag
