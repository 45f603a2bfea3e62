"""The two clusters of a migration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable


def names_of(blue: AdminClient, green: AdminClient) -> dict[str, str]:
    """`blue` and `green` → the cluster's own name, which every text for people has."""
    return {"blue": blue.connection.name, "green": green.connection.name}


@dataclass(frozen=True, slots=True)
class Sides:
    """The two clusters of a migration.

    :param retry_seconds: how long a step retries calls to an unreachable cluster.
    :param preparing: id of the task that prepares the cluster to which the namespaces move.
    :param thirds: further clusters that may replicate into what moves.
    """

    blue: ClusterConnection
    green: ClusterConnection
    retry_seconds: float = 30.0
    preparing: str = "prepare_green"
    thirds: tuple[ClusterConnection, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """`blue`, `green` and `prepare_green` → the name that the clusters and the task have in this run."""
        return {"blue": self.blue.name, "green": self.green.name, "prepare_green": self.preparing}

    def reversed(self) -> Sides:
        """The clusters in the order of the steps of a failback: the cluster that the namespaces leave comes first."""
        return Sides(self.green, self.blue, self.retry_seconds, preparing="prepare_blue", thirds=self.thirds)

    @asynccontextmanager
    async def open_thirds(self) -> AsyncIterator[dict[str, AdminClient]]:
        """Open an admin client for each further cluster, by its own name.

        :raises Unavailable: one does not answer.
        """
        async with AsyncExitStack() as stack:
            yield dict([await stack.enter_async_context(self.open_third(each)) for each in self.thirds])

    @asynccontextmanager
    async def open_third(self, connection: ClusterConnection) -> AsyncIterator[tuple[str, AdminClient]]:
        """Open an admin client for one of them, with its own name; errors as those of `open_thirds`."""
        async with AdminClient(connection, retry_seconds=self.retry_seconds) as third:
            yield await _name_of(third), third

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[AdminClient, AdminClient]]:
        """Open an admin client for each cluster, blue's first."""
        async with (
            AdminClient(self.blue, retry_seconds=self.retry_seconds) as blue,
            AdminClient(self.green, retry_seconds=self.retry_seconds) as green,
        ):
            yield blue, green


async def _name_of(third: AdminClient) -> str:
    try:
        return await third.cluster_name()
    except Unavailable as error:
        raise Unavailable(
            f"The third cluster {third.connection.argument!r} does not answer, and what it replicates is held at the "
            f"cut-over and led on: {error} Run this step again when it answers.",
            cluster=third.connection.name,
        ) from error
