"""Follow several clusters without an end: who does not answer yet is joined when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.policy_sync.events.connect import Reached, open_site, reach
from pulsar_fleet.policy_sync.events.follower import PAUSE_SECONDS, Tally, follow, pause, side_by_side
from pulsar_fleet.policy_sync.events.outages import Silences, behind_text
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.setup import prepare

_PATIENCE_SECONDS = 2.0
"""A follower tries again by itself, and says sooner than a run that a cluster does not answer."""


async def follow_all(
    connections: Sequence[ClusterConnection],
    request: Request,
    run: Run,
    *,
    stopped: asyncio.Event,
    say: Callable[[str], None],
) -> JsonObject:
    """Make the event topic, then publish and apply on each cluster until stopped.

    :param say: is told when it begins, and when a cluster stops to answer or answers again.
    :returns: cluster → what `Tally.to_json` says.
    :raises Transient: no cluster answers.
    :raises Rejected: the event topic is not there, and not all clusters answer that are needed to make it.
    """
    async with reach(connections, _PATIENCE_SECONDS) as reached:
        seal = open_seal()
        fleet = await prepare(reached.clusters, request, run, seal)
        crew = _Crew(
            reached=reached,
            fleet=fleet,
            request=request,
            run=run,
            seal=seal,
            silences=reached.silences(run, request),
            stopped=stopped,
            say=say,
        )
        say(f"Following {', '.join(reached.clusters)} of {', '.join(fleet)}")
        late = [connection for connection in connections if connection.name in reached.behind]
        await side_by_side(*map(crew.follow, list(reached.clusters)), *map(crew.join, late))
    return {name: one.to_json() for name, one in crew.tallies.items()}


@dataclass(kw_only=True)
class _Crew:
    """The followers of one process."""

    reached: Reached
    fleet: tuple[str, ...]
    request: Request
    run: Run
    seal: Redactor
    silences: Silences
    stopped: asyncio.Event
    say: Callable[[str], None]
    tallies: dict[str, Tally] = field(default_factory=dict)

    async def follow(self, name: str) -> None:
        """Follow a cluster that answers."""
        tally = self.tallies.setdefault(name, Tally())
        async with open_site(name, self.reached, self.fleet, self.request, self.run, self.seal) as site:
            await follow(site, tally, self.silences, self.stopped, self.say)

    async def join(self, connection: ClusterConnection) -> None:
        """Follow a cluster from when it answers on."""
        async with AdminClient(connection, retry_seconds=_PATIENCE_SECONDS) as admin:
            why = Unavailable(self.reached.behind[connection.name])
            while not self.stopped.is_set():
                self._miss(connection, why)
                await pause(self.stopped, PAUSE_SECONDS)
                try:
                    name = await self.reached.add(admin)
                    await prepare({name: admin}, self.request, self.run, self.seal)
                    self._welcome(connection, name)
                    await self.follow(name)
                except Unavailable as error:
                    why = error

    def _miss(self, connection: ClusterConnection, why: Unavailable) -> None:
        name, since = self.silences.begin(connection.name)
        tally = self.tallies.setdefault(name, Tally())
        if not tally.behind_since:
            self.say(behind_text(name, since, why))
        tally.behind_since = since.isoformat()

    def _welcome(self, connection: ClusterConnection, name: str) -> None:
        self.silences.end(connection.name, name)
        for known in {name, connection.name} & self.tallies.keys():
            self.tallies[known].behind_since = ""
        self.say(f"{name} answers; following it too")
