"""Which namespaces are replicated between which clusters now, by the lists that the clusters store."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.replication.clusters import Clusters
from pulsar_fleet.replication.topology import Link
from pulsar_fleet.snapshot.tenants import list_namespaces, tenant_names


async def replicated_namespaces(clusters: Clusters, selection: Selection) -> dict[Link, tuple[str, ...]]:
    """Link → its namespaces, in order; only links between these clusters.

    Calls: one for each tenant and namespace of each cluster. Lists of single topics are not read.
    """
    links: dict[Link, list[str]] = {}
    for name, admin in clusters.admins.items():
        for namespace, peers in (await _lists(admin, selection)).items():
            for peer in sorted({*peers} & {*clusters.admins} - {name}):
                links.setdefault(Link(name, peer), []).append(str(namespace))
    return {link: tuple(sorted(namespaces)) for link, namespaces in sorted(links.items())}


async def _lists(admin: AdminClient, selection: Selection) -> dict[NamespaceName, list[str]]:
    tenants = await list_namespaces(admin, await tenant_names(admin, selection))
    names = [name for namespaces in tenants.values() for name in namespaces or () if selection.has(name)]
    documents = await asyncio.gather(*(admin.namespace(name) for name in names))
    return {
        name: list((document or {}).get("replication_clusters") or ())
        for name, document in zip(names, documents, strict=True)
    }
