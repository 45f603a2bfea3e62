"""Copy what is stored on blue to green by geo-replication, from the first message on, one way."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import subscription_cursors
from pulsar_fleet.migration.artefacts import RESERVED
from pulsar_fleet.planning.hazards.guards import guard_cluster_lists


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
        raise NotFound(f"Tenant {tenant!r} does not exist on {blue.connection.name}.")
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


async def reserve(blue: AdminClient, green: AdminClient, topic: TopicName) -> tuple[str, ...]:
    """Create on green, at the earliest position, the idle subscriptions with a backlog that it lacks; their names.

    Call it before the first entry is replicated; the switch moves them to their places. Again creates nothing.
    """
    stats, held, there = await asyncio.gather(
        blue.stats(topic, precise=False), blue.internal_stats(topic), green.stats(topic, precise=False)
    )
    created = []
    present = TopicStats.of(topic, there).subscriptions
    for name, cursor in subscription_cursors(Ledgers.of(held), TopicStats.of(topic, stats), held).items():
        if cursor.consumers == 0 and cursor.unread and name not in present:
            await green.create_subscription(topic, name)
            created.append(name)
    return tuple(created)


def remember_reserved(run: Run, reserved: Mapping[TopicName, Sequence[str]]) -> None:
    """Keep what was created, beside what was before: a stop takes it back."""
    found = {topic: {*names} for topic, names in known_reserved(run).items()}
    for topic, names in reserved.items():
        found.setdefault(topic, set()).update(names)
    document = {str(topic): sorted(names) for topic, names in found.items() if names}
    run.artefacts.write_json(run.id, RESERVED, document)


def known_reserved(run: Run) -> dict[TopicName, list[str]]:
    """Partition → the subscriptions that this run created on green to keep a backlog."""
    reference = run.artefacts.find(run.id, RESERVED)
    document = run.artefacts.read_json(reference) if reference else {}
    return {TopicName.parse(topic): list(names) for topic, names in document.items()}
