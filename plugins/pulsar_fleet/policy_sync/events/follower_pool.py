"""Follow several clusters until stopped; an unreachable cluster joins when it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import Fleet, open_fleet
from pulsar_fleet.policy_sync.events.fleet.outages import Outages, behind_text, outages_of
from pulsar_fleet.policy_sync.events.follower import PAUSE_SECONDS, follow, pause, run_all
from pulsar_fleet.policy_sync.events.participant import open_participant
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.results import Tally
from pulsar_fleet.policy_sync.events.setup import prepare

_PATIENCE_SECONDS = 2.0
"""A follower retries by itself, and reports an unreachable cluster sooner than a run."""


async def follow_all(
    connections: Sequence[ClusterConnection],
    request: Request,
    run: Run,
    *,
    stopped: asyncio.Event,
    say: Callable[[str], None],
) -> dict[str, Tally]:
    """Create the event topic, then publish and apply on each cluster until stopped.

    :param say: receives a line at the start, and when a cluster stops answering or answers again.
    :returns: the counts by cluster.
    :raises Unavailable: no cluster answers.
    :raises InvalidRequest: the event topic does not exist, and a cluster that is needed to create it does not answer.
    """
    async with open_fleet(connections, _PATIENCE_SECONDS) as reached:
        redactor = open_redactor()
        fleet = await prepare(reached.clusters, request, run, redactor)
        pool = _FollowerPool(
            reached=reached,
            fleet=fleet,
            request=request,
            run=run,
            redactor=redactor,
            outages=outages_of(reached, run, request),
            stopped=stopped,
            say=say,
        )
        say(f"Following {', '.join(reached.clusters)} of {', '.join(fleet)}")
        unreachable = [connection for connection in connections if connection.name in reached.behind]
        await run_all(*map(pool.follow, list(reached.clusters)), *map(pool.join, unreachable))
    return pool.tallies


@dataclass(kw_only=True)
class _FollowerPool:
    """The followers of one process."""

    reached: Fleet
    fleet: tuple[str, ...]
    request: Request
    run: Run
    redactor: Redactor
    outages: Outages
    stopped: asyncio.Event
    say: Callable[[str], None]
    tallies: dict[str, Tally] = field(default_factory=dict)

    async def follow(self, name: str) -> None:
        """Follow a cluster that answers."""
        tally = self.tallies.setdefault(name, Tally())
        opened = open_participant(name, self.reached, self.fleet, self.request, self.run, self.redactor)
        async with opened as participant:
            await follow(participant, tally, self.outages, self.stopped, self.say)

    async def join(self, connection: ClusterConnection) -> None:
        """Wait until a cluster answers, then follow it."""
        async with AdminClient(connection, retry_seconds=_PATIENCE_SECONDS) as admin:
            why = Unavailable(self.reached.behind[connection.name])
            while not self.stopped.is_set():
                self._begin_outage(connection, why)
                await pause(self.stopped, PAUSE_SECONDS)
                try:
                    name = await admin.cluster_name()
                    self.reached.add(name, admin)
                    self.reached.behind.pop(connection.name, None)
                    self.fleet = await prepare({name: admin}, self.request, self.run, self.redactor)
                    self._end_outage(connection, name)
                    await self.follow(name)
                except Unavailable as error:
                    why = error

    def _begin_outage(self, connection: ClusterConnection, why: Unavailable) -> None:
        name, since = self.outages.begin(connection.name)
        tally = self.tallies.setdefault(name, Tally())
        if not tally.behind_since:
            self.say(behind_text(name, since, why))
        tally.behind_since = since.isoformat()

    def _end_outage(self, connection: ClusterConnection, name: str) -> None:
        self.outages.end(connection.name, name)
        for label in {name, connection.name} & self.tallies.keys():
            self.tallies[label].behind_since = ""
        self.say(f"{name} answers; following it too")
