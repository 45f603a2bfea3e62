"""Connect to the event topics of the participating clusters (client)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.policy_sync.events.event_topic import EventTopic
from pulsar_fleet.policy_sync.events.outages import Outages
from pulsar_fleet.policy_sync.events.participant import Participant
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.fleet import Fleet


def outages_of(reached: Fleet, run: Run, request: Request) -> Outages:
    """The outages of the fleet, after those of the clusters that answer were ended."""
    outages = Outages(run.ledger, request.event_topic)
    for name, admin in reached.clusters.items():
        if admin.connection.name not in reached.behind:
            outages.end(admin.connection.name, name)
    return outages


@asynccontextmanager
async def open_participant(
    name: str, reached: Fleet, fleet: tuple[str, ...], request: Request, run: Run, redactor: Redactor
) -> AsyncIterator[Participant]:
    """One cluster with its event topic, which must exist.

    :raises Unavailable: the topic cannot be used now.
    """
    admin = reached.clusters[name]
    # Scans have a client of their own: the rate limit must not delay the events of other clusters.
    scan_admin = AdminClient(
        admin.connection, retry_seconds=admin.http.retry_seconds, calls_per_second=request.calls_per_second
    )
    async with scan_admin, EventTopic(admin.connection, request) as topic:
        yield Participant(
            own=name,
            admin=admin,
            scan_admin=scan_admin,
            topic=topic,
            request=request,
            ledger=run.ledger,
            redactor=redactor,
            fleet=fleet,
            clusters=reached.clusters,
        )
