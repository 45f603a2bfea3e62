"""The trigger that waits for a milestone of a migration without a worker slot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import ShownLines

if TYPE_CHECKING:
    from pulsar_fleet.procedures.copy_wait import CopyWait

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0


class Milestone(StrEnum):
    """What a migration can wait for."""

    REPLICATED = "replicated"
    REPOINTED = "repointed"
    DRAINED = "drained"


class Status(StrEnum):
    """The result of a poll."""

    DONE = "done"
    WAITING = "waiting"
    INCIDENT = "incident"
    TIMEOUT = "timeout"
    ERROR = "error"


class MigrationTrigger(BaseTrigger):
    """Fires at the milestone, when an incident needs remediation, or at the timeout.

    :param milestone: a value of `Milestone`.
    :param blue: connection id; the trigger reads the connections itself, so its arguments contain no secret.
    :param moves: reference of the artefact with the namespaces of the migration.
    :param run_id: id of the run's records, where the state of the drain is stored.
    :param poll_seconds: time between two polls; at least 5, since a task that resumes sooner can be marked failed.
    :param end: time of the timeout, seconds since the epoch: restarts of the triggerer do not extend it.
    """

    def __init__(
        self, *, milestone: str, blue: str, green: str, moves: JsonObject, run_id: str, poll_seconds: float, end: float
    ) -> None:
        BaseTrigger.__init__(self)
        self.milestone = milestone
        self.blue = blue
        self.green = green
        self.moves = moves
        self.run_id = run_id
        self.poll_seconds = poll_seconds
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments of this trigger."""
        return (
            "pulsar_fleet.airflow.triggers.migration.MigrationTrigger",
            {
                "milestone": self.milestone,
                "blue": self.blue,
                "green": self.green,
                "moves": self.moves,
                "run_id": self.run_id,
                "poll_seconds": self.poll_seconds,
                "end": self.end,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until one event can be sent."""
        try:
            status, message = await self._poll_until_event()
        except (FleetError, AirflowNotFoundException) as error:
            status, message = Status.ERROR, str(error)
        yield TriggerEvent({"status": status.value, "message": message, "end": self.end})

    async def _poll_until_event(self) -> tuple[Status, str]:
        from pulsar_fleet.airflow.conf import moves_of
        from pulsar_fleet.airflow.hooks.pulsar import from_airflow
        from pulsar_fleet.ledger.run import Run
        from pulsar_fleet.migration.clusters import Sides
        from pulsar_fleet.procedures.copy_wait import CopyWait

        sides = Sides(
            from_airflow(await BaseHook.aget_connection(self.blue)),
            from_airflow(await BaseHook.aget_connection(self.green)),
        )
        moves = await asyncio.to_thread(moves_of, self.moves)
        run = await asyncio.to_thread(Run.open, self.run_id)
        copy, shown, line = CopyWait(sides, run, moves), ShownLines(LOG_SECONDS), "not polled yet"
        while time.time() < self.end:
            await asyncio.sleep(self.poll_seconds)
            try:
                status, line = await poll(Milestone(self.milestone), copy)
            except Unavailable as error:
                # A broker may restart: keep polling until the timeout.
                status, line = Status.WAITING, str(error)
            if status is not Status.WAITING:
                return status, line
            if shown.is_due(line):
                log.info("%s", line)
        return Status.TIMEOUT, line


async def poll(milestone: Milestone, copy: CopyWait) -> tuple[Status, str]:
    """The status, and a line of progress; changes nothing but cursors on green that no consumer uses."""
    from pulsar_fleet.migration.drain import steps as drain_steps

    if milestone is not Milestone.DRAINED:
        done, line = await milestone_progress(milestone, copy)
        return Status.DONE if done else Status.WAITING, line
    status = await drain_steps.poll_drain(copy.sides, copy.run, copy.moves)
    if status.needs_worker:
        # Remediation runs on a worker: it writes to the clusters and to the ledger, and can block with a client.
        return Status.DONE if status.is_done else Status.INCIDENT, status.line()
    return Status.WAITING, status.line()


async def milestone_progress(milestone: Milestone, copy: CopyWait) -> tuple[bool, str]:
    """Whether the copy is near its end, or the applications have left, and a line of progress."""
    from pulsar_fleet.migration.repoint.steps import repoint_progress

    if milestone is Milestone.REPLICATED:
        return await copy.look()
    return await repoint_progress(copy.sides, copy.run, copy.moves)
