"""The two clusters of a migration, and where the run sends blue's clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import REDIRECT
from pulsar_fleet.migration.cutover.redirect import Redirect, redirect_to


@dataclass(frozen=True, slots=True)
class Sides:
    """The two clusters of a migration; `retry_seconds`: for how long a step waits for one that does not answer."""

    blue: ClusterConnection
    green: ClusterConnection
    retry_seconds: float = 30.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[AdminClient, AdminClient]]:
        """A client for each side."""
        async with (
            AdminClient(self.blue, retry_seconds=self.retry_seconds) as blue,
            AdminClient(self.green, retry_seconds=self.retry_seconds) as green,
        ):
            yield blue, green


def redirect_of(sides: Sides, run: Run) -> Redirect:
    """Where the run sends blue's clients: the addresses that its gates proved, or those of the connection."""
    proven = run.artefacts.find(run.id, REDIRECT)
    return Redirect.from_json(run.artefacts.read_json(proven)) if proven else redirect_to(sides.green)
