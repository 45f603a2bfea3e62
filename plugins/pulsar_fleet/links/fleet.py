"""The open connections of a run, and the clusters that cannot be reached (client)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection, refuse_same_cluster
from pulsar_fleet.cluster.errors import Unavailable


@dataclass(kw_only=True)
class Fleet:
    """The clusters that answer, by their own names.

    :param behind: name of the connection → why its cluster does not answer.
    """

    clusters: dict[str, AdminClient] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, admin: AdminClient) -> None:
        """Add a cluster that answers; a second connection to it is `InvalidRequest`."""
        first = self.clusters.setdefault(name, admin)
        if first is not admin:
            refuse_same_cluster(first.connection.name, admin.connection.name, (name, name))

    def remove(self, lost: Mapping[str, str]) -> None:
        """Remove clusters that stopped answering; `lost` has the form of `behind`."""
        self.clusters = {name: admin for name, admin in self.clusters.items() if admin.connection.name not in lost}
        self.behind |= lost


@asynccontextmanager
async def open_fleet(connections: Sequence[ClusterConnection], patience: float) -> AsyncIterator[Fleet]:
    """Open all connections; a cluster that does not answer does not stop the others.

    :param patience: for how many seconds a call with a temporary failure is retried.
    :raises InvalidRequest: two connections lead to one cluster.
    :raises PermissionDenied: a cluster denies access.
    :raises Unavailable: no cluster answers.
    """
    fleet = Fleet()
    async with AsyncExitStack() as stack:
        opened = [AdminClient(connection, retry_seconds=patience) for connection in connections]
        admins = [await stack.enter_async_context(admin) for admin in opened]
        names = await asyncio.gather(*(_name(admin) for admin in admins))
        for admin, name in zip(admins, names, strict=True):
            if isinstance(name, Unavailable):
                fleet.behind[admin.connection.name] = str(name)
            else:
                fleet.add(name, admin)
        if not fleet.clusters:
            raise Unavailable(f"No cluster answers: {next(iter(fleet.behind.values()))}")
        yield fleet


async def _name(admin: AdminClient) -> str | Unavailable:
    try:
        return await admin.cluster_name()
    except Unavailable as error:
        return error
