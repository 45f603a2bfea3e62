"""The open connections of a run, by the clusters' own names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, Unavailable
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.replication.topology import Topology

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
