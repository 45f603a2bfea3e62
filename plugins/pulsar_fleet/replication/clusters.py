"""The open connections of a run, by the clusters' own names, and whether their data of each other leads there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection, split_admin_url
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import without_user_info
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.replication.topology import Link, Topology
from pulsar_fleet.snapshot.model import Snapshot

_PATIENCE = 30.0
_PATIENCE_LEAVING = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """The clusters of a run.

    :param admins: of those that answer, by the clusters' own names, members first.
    :param absent: clusters that leave and do not answer.
    """

    topology: Topology
    admins: Mapping[str, AdminClient]
    absent: tuple[str, ...] = ()

    @property
    def connections(self) -> dict[str, ClusterConnection]:
        """By the clusters' own names."""
        return {name: admin.connection for name, admin in self.admins.items()}

    @property
    def calls(self) -> int:
        """Admin calls so far, on all clusters."""
        return sum(admin.calls for admin in self.admins.values())


@asynccontextmanager
async def open_clusters(
    members: Sequence[ClusterConnection],
    receive_only: Sequence[ClusterConnection] = (),
    leaving: Sequence[ClusterConnection] = (),
) -> AsyncIterator[Clusters]:
    """Open all connections: one call for each.

    A cluster that leaves may be gone for good: then its connection must say its name, in `cluster_name`.

    :raises InvalidRequest: two connections lead to one cluster; the name of a cluster that is gone is not known.
    :raises Unavailable: a cluster that stays does not answer.
    """
    async with AsyncExitStack() as stack:
        names: list[list[str]] = []
        fleet = Fleet()
        absent: list[str] = []
        for group in (members, receive_only, leaving):
            patience = _PATIENCE_LEAVING if group is leaving else _PATIENCE
            opened = [AdminClient(connection, retry_seconds=patience) for connection in group]
            for admin in opened:
                await stack.enter_async_context(admin)
            answers = await asyncio.gather(*(_name(admin, may_be_gone=group is leaving) for admin in opened))
            names.append([name for name, _ in answers])
            for admin, (name, answers_calls) in zip(opened, answers, strict=True):
                if not answers_calls:
                    absent.append(name)
                else:
                    fleet.add(name, admin)
        topology = Topology(members=tuple(names[0]), receive_only=tuple(names[1]), leaving=tuple(names[2]))
        yield Clusters(topology=topology, admins=fleet.clusters, absent=tuple(absent))


async def _name(admin: AdminClient, *, may_be_gone: bool) -> tuple[str, bool]:
    """The cluster's name, and whether it answers."""
    try:
        return await admin.cluster_name(), True
    except Unavailable as error:
        if not may_be_gone:
            raise
        if admin.connection.cluster_name:
            return admin.connection.cluster_name, False
        raise InvalidRequest(
            f"{error} If it is gone for good, write its name in 'cluster_name' of connection "
            f"{admin.connection.name!r}: then it is taken out of the other clusters."
        ) from error


_ADDRESS_PATIENCE = 2.0
_ADMIN, _SERVICE = ("serviceUrl", "serviceUrlTls"), ("brokerServiceUrl", "brokerServiceUrlTls")


async def wrong_addresses(
    snapshots: Mapping[str, Snapshot], connections: Mapping[str, ClusterConnection], topology: Topology
) -> dict[Link, str]:
    """Links whose source has data about the target that does not lead there, and why.

    Data with the addresses of the target's connection is right. Other addresses are asked for the name of their
    cluster, from here and with the credentials of that connection: one call for each.
    """
    stored = {
        Link(name, peer.name): peer.data
        for name, snapshot in snapshots.items()
        for peer in snapshot.clusters
        if Link(name, peer.name) in {*topology.links()}
    }
    problems = await asyncio.gather(*(_problem(link, data, connections) for link, data in stored.items()))
    return {link: problem for link, problem in zip(stored, problems, strict=True) if problem}


async def _problem(link: Link, data: JsonObject, connections: Mapping[str, ClusterConnection]) -> str:
    target = connections[link.target]
    if not any(data.get(key) for key in _SERVICE):
        return "it has no brokerServiceUrl"
    if missing := _missing_credentials(data, target):
        return missing
    data = without_user_info(data)
    known = {*_addresses(target.cluster_data()), *map(_address, target.client_urls)}
    stored = {*_addresses(data)}
    if stored <= known:
        return ""
    url = next((str(data[key]) for key in reversed(_ADMIN) if data.get(key)), "")
    if not url:
        return f"brokerServiceUrl leads to {', '.join(sorted(stored - known))}, the connection to another address"
    other = replace(target, admin_url=url, broker_urls=())
    try:
        async with AdminClient(other, retry_seconds=_ADDRESS_PATIENCE) as admin:
            name = await admin.cluster_name()
    except FleetError as error:
        return f"{url} is not an address of connection {target.name!r}, and does not answer from here: {error}"
    return "" if name == link.target else f"{url} leads to cluster {name}"


def _missing_credentials(data: JsonObject, target: ClusterConnection) -> str:
    link = target.replication_auth.cluster_data() if target.replication_auth else {}
    if link.get("authenticationPlugin") and not data.get("authenticationPlugin"):
        return "it has no credentials, and the connection's replication_auth has some"
    return ""


def _addresses(data: JsonObject) -> Iterator[str]:
    for key in (*_ADMIN, *_SERVICE):
        if value := data.get(key):
            yield from map(_address, split_admin_url(str(value)))


def _address(url: str) -> str:
    return urlsplit(url).netloc
