"""Read the resources of a cluster that belong to no tenant: cluster data, resource groups, brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import BROKERS, Area, PartialReads
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.snapshot.model import BrokerState, ClusterDataState, ResourceGroupState


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
