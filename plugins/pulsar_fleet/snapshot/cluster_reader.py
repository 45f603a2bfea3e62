"""What a cluster holds beside tenants: what it knows of clusters, and its resource groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.snapshot.model import BrokerState, ClusterDataState, ResourceGroupState


async def read_clusters(
    admin: AdminClient, names: Iterable[str], seal: Redactor, attempts: PartialReads
) -> list[ClusterDataState]:
    """Addresses, failure domains and isolation policies of each known cluster: three calls each. Needs a superuser."""
    found = await asyncio.gather(*(_read_cluster(admin, name, seal, attempts) for name in names))
    return [one for one in found if one is not None]


async def read_resource_groups(admin: AdminClient, attempts: PartialReads) -> list[ResourceGroupState]:
    """The resource groups with their limits: a call each. Needs a superuser."""
    names = await attempts.read("resource groups", admin.get("/resourcegroups"), area=Area.RESOURCE_GROUPS)
    read = (attempts.read(f"resource group {name}", _read_group(admin, name)) for name in sorted(names or ()))
    return [one for one in await asyncio.gather(*read) if one is not None]


async def _read_cluster(
    admin: AdminClient, name: str, seal: Redactor, attempts: PartialReads
) -> ClusterDataState | None:
    data = await attempts.read(f"cluster {name}", admin.cluster_data(name), area=Area.CLUSTERS)
    if data is None:
        return None
    path = f"/clusters/{quote(name, safe='')}"
    kinds = ("failureDomains", "namespaceIsolationPolicies")
    domains, isolation = [
        await attempts.read(f"{kind} of {name}", _documents(admin, f"{path}/{kind}"), area=Area.ISOLATION) or {}
        for kind in kinds
    ]
    return ClusterDataState(name, seal.redact(data), domains, isolation)


async def _documents(admin: AdminClient, path: str) -> JsonObject:
    # A cluster that never had an isolation policy answers 404.
    try:
        return dict(await admin.get(path) or {})
    except NotFound:
        return {}


async def _read_group(admin: AdminClient, name: str) -> ResourceGroupState:
    return ResourceGroupState(name, dict(await admin.get(f"/resourcegroups/{quote(name, safe='')}")))


async def read_brokers(admin: AdminClient, seal: Redactor, attempts: PartialReads) -> list[BrokerState]:
    """Ask every live broker at its own address: an answer of one says nothing about the others. Needs a superuser.

    For a role that may not ask, the one that answers is told with its version and without a configuration, and
    what is hidden is noted.
    """
    addresses = await attempts.read("brokers", admin.brokers(), area=Area.BROKERS)
    if addresses is None:
        return [BrokerState(urlsplit(admin.connection.admin_url).netloc, await admin.version(), {})]
    read = (attempts.read(f"broker {address}", _read_broker(admin, address, seal)) for address in addresses)
    return [one for one in await asyncio.gather(*read) if one is not None]


async def _read_broker(admin: AdminClient, address: str, seal: Redactor) -> BrokerState:
    version = await admin.version(address)
    return BrokerState(address, version, seal.redact(await admin.runtime_configuration(address)))
