"""Connect to the participating clusters and their event topics (client)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, Unavailable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.policy_sync.events.event_topic import EventTopic
from pulsar_fleet.policy_sync.events.outages import Outages
from pulsar_fleet.policy_sync.events.participant import Participant
from pulsar_fleet.policy_sync.events.request import Request


@dataclass(kw_only=True)
class ReachableClusters:
    """The clusters that answer, by their own names.

    :param behind: connection → why its cluster does not answer.
    """

    clusters: dict[str, AdminClient] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)

    async def add(self, admin: AdminClient) -> str:
        """Add a cluster that answers; returns its name. A second connection to it is `InvalidRequest`.

        :raises Unavailable: it does not answer.
        """
        name = await admin.cluster_name()
        first = self.clusters.setdefault(name, admin)
        if first is not admin:
            raise InvalidRequest(
                f"Connections {first.connection.name!r} and {admin.connection.name!r} both lead to cluster {name!r}."
            )
        return name

    def outages(self, run: Run, request: Request) -> Outages:
        """The outages of the fleet, after those of the clusters that answer were ended."""
        outages = Outages(run.ledger, request.event_topic)
        for name, admin in self.clusters.items():
            if admin.connection.name not in self.behind:
                outages.end(admin.connection.name, name)
        return outages


@asynccontextmanager
async def reach(connections: Sequence[ClusterConnection], patience: float) -> AsyncIterator[ReachableClusters]:
    """Connect to all clusters that answer.

    :param patience: for how many seconds a call with a temporary failure is retried.
    :raises Unavailable: no cluster answers.
    """
    reached = ReachableClusters()
    async with AsyncExitStack() as stack:
        for connection in connections:
            admin = await stack.enter_async_context(AdminClient(connection, retry_seconds=patience))
            try:
                await reached.add(admin)
            except Unavailable as error:
                reached.behind[connection.name] = str(error)
        if not reached.clusters:
            raise Unavailable(f"No cluster answers: {next(iter(reached.behind.values()))}")
        yield reached


@asynccontextmanager
async def open_participant(
    name: str, reached: ReachableClusters, fleet: tuple[str, ...], request: Request, run: Run, redactor: Redactor
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
