"""Reach the clusters that take part, and their event topics (client)."""

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
from pulsar_fleet.policy_sync.events.outages import Silences
from pulsar_fleet.policy_sync.events.participant import Site
from pulsar_fleet.policy_sync.events.request import Request


@dataclass(kw_only=True)
class Reached:
    """The clusters that answer, by their own names.

    :param behind: connection → why its cluster does not answer.
    """

    clusters: dict[str, AdminClient] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)

    async def add(self, admin: AdminClient) -> str:
        """Take part with a cluster that answers; returns its name. A second connection to it is `InvalidRequest`.

        :raises Transient: it does not answer.
        """
        name = await admin.cluster_name()
        first = self.clusters.setdefault(name, admin)
        if first is not admin:
            raise InvalidRequest(
                f"Connections {first.connection.name!r} and {admin.connection.name!r} both lead to cluster {name!r}."
            )
        return name

    def silences(self, run: Run, request: Request) -> Silences:
        """Since when clusters do not answer; the silences of those that do are over."""
        found = Silences(run.ledger, request.event_topic)
        for name, admin in self.clusters.items():
            if admin.connection.name not in self.behind:
                found.end(admin.connection.name, name)
        return found


@asynccontextmanager
async def reach(connections: Sequence[ClusterConnection], patience: float) -> AsyncIterator[Reached]:
    """Open all clusters that answer.

    :param patience: seconds for which a call that fails for a passing reason is tried again.
    :raises Transient: no cluster answers.
    """
    reached = Reached()
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
async def open_site(
    name: str, reached: Reached, fleet: tuple[str, ...], request: Request, run: Run, seal: Redactor
) -> AsyncIterator[Site]:
    """One cluster with its event topic, which must be there.

    :raises Transient: the topic cannot be used now.
    """
    admin = reached.clusters[name]
    # A client of its own, since only looks are slowed down: what others wrote is applied at once.
    looker = AdminClient(
        admin.connection, retry_seconds=admin.http.retry_seconds, calls_per_second=request.calls_per_second
    )
    async with looker, EventTopic(admin.connection, request) as topic:
        yield Site(
            own=name,
            admin=admin,
            looker=looker,
            topic=topic,
            request=request,
            ledger=run.ledger,
            seal=seal,
            fleet=fleet,
            clusters=reached.clusters,
        )
