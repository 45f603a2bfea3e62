"""The trigger that waits until ending links have sent what they have, without a worker slot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.polling import ShownLines

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run

log = logging.getLogger(__name__)

GROUPS = ("clusters", "receive_only", "leaving")
"""The settings with connection ids: members, clusters that only receive, clusters that leave."""
LOG_SECONDS = 10.0


class BacklogSentTrigger(BaseTrigger):
    """Fires when nothing is left to send, when it cannot be read, or at the end; a worker then reads it again.

    :param connections: the connection ids of each of `GROUPS`; the trigger reads the connections itself, so its
        arguments contain no secret.
    :param planned: the stored plan.
    :param run_id: id of the run's records.
    :param poll_seconds: time between two reads; at least 5, since a task that resumes sooner can be marked failed.
    :param until: of the wait, seconds since the epoch: restarts of the triggerer do not extend it.
    :param end: of the timeout of the task; the event returns it.
    """

    def __init__(
        self,
        *,
        connections: dict[str, list[str]],
        planned: JsonObject,
        run_id: str,
        poll_seconds: float,
        until: float,
        end: float,
    ) -> None:
        BaseTrigger.__init__(self)
        self.connections = connections
        self.planned = planned
        self.run_id = run_id
        self.poll_seconds = poll_seconds
        self.until = until
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of this trigger."""
        names = ("connections", "planned", "run_id", "poll_seconds", "until", "end")
        path = "pulsar_fleet.airflow.triggers.replication.BacklogSentTrigger"
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Read until nothing is left to send."""
        from pulsar_fleet.ledger.run import Run

        run = await asyncio.to_thread(Run.open, self.run_id)
        shown = ShownLines(LOG_SECONDS)
        while True:
            await asyncio.sleep(self.poll_seconds)
            try:
                figures = await unsent_backlog(self.connections, self.planned, run)
            except Unavailable as error:
                # A broker may restart: keep reading until the end.
                figures = str(error)
            except FleetError as error:
                log.warning("%s", error)
                break
            if not figures or time.time() >= self.until:
                break
            if shown.is_due(figures):
                log.info("%s", figures)
        yield TriggerEvent({"end": self.end})


async def unsent_backlog(connections: Mapping[str, Sequence[str]], planned: JsonObject, run: Run) -> str:
    """What still has to be sent before links may end, in a sentence; empty if nothing."""
    from pulsar_fleet.airflow.hooks.pulsar import aread_connection
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.clusters import open_clusters
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    groups = [[await aread_connection(name) for name in connections[group]] for group in GROUPS]
    async with open_clusters(*groups) as clusters:
        return await steps.backlog_of_ending_links(clusters, StoredReplicationPlan.from_json(planned), run)
