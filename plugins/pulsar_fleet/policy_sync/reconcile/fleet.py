"""The open connections of a run, and the clusters that cannot be reached (client)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, Unavailable

PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Clusters by their own names.

    :param behind: name of the connection → why its cluster does not answer.
    """

    clusters: Mapping[str, AdminClient]
    behind: Mapping[str, str] = field(default_factory=dict)

    def without(self, lost: Mapping[str, str]) -> Self:
        """The fleet without clusters that stopped answering; `lost` has the form of `behind`."""
        remaining = {name: admin for name, admin in self.clusters.items() if admin.connection.name not in lost}
        return replace(self, clusters=remaining, behind={**self.behind, **lost})


@asynccontextmanager
async def open_fleet(connections: Sequence[ClusterConnection]) -> AsyncIterator[Fleet]:
    """Open all connections; a cluster that does not answer does not stop the others.

    :raises InvalidRequest: fewer than two connections, or two connections to one cluster.
    :raises PermissionDenied: a cluster denies access.
    :raises Unavailable: no cluster answers.
    """
    if len(connections) < 2:
        raise InvalidRequest("Reconciliation needs at least two clusters: name their connections.")
    async with AsyncExitStack() as stack:
        admins = [
            await stack.enter_async_context(AdminClient(connection, retry_seconds=PATIENCE_SECONDS))
            for connection in connections
        ]
        names = await asyncio.gather(*(_name(admin) for admin in admins))
        clusters: dict[str, AdminClient] = {}
        behind: dict[str, str] = {}
        for admin, name in zip(admins, names, strict=True):
            if isinstance(name, Unavailable):
                behind[admin.connection.name] = str(name)
            elif name in clusters:
                first = clusters[name].connection.name
                raise InvalidRequest(
                    f"Connections {first!r} and {admin.connection.name!r} both lead to cluster {name!r}; "
                    "name different clusters."
                )
            else:
                clusters[name] = admin
        if not clusters:
            raise Unavailable(f"No cluster answers: {next(iter(behind.values()))}")
        yield Fleet(clusters=clusters, behind=behind)


async def _name(admin: AdminClient) -> str | Unavailable:
    try:
        return await admin.cluster_name()
    except Unavailable as error:
        return error
