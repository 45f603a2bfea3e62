"""The two clusters of a migration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection


@dataclass(frozen=True, slots=True)
class Sides:
    """The two clusters of a migration.

    :param retry_seconds: how long a step retries calls to an unreachable cluster.
    """

    blue: ClusterConnection
    green: ClusterConnection
    retry_seconds: float = 30.0

    def reversed(self) -> Sides:
        """The clusters in the order of the steps of a failback: the cluster that the namespaces leave comes first."""
        return Sides(self.green, self.blue, self.retry_seconds)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[AdminClient, AdminClient]]:
        """Open an admin client for each cluster, blue's first."""
        async with (
            AdminClient(self.blue, retry_seconds=self.retry_seconds) as blue,
            AdminClient(self.green, retry_seconds=self.retry_seconds) as green,
        ):
            yield blue, green
