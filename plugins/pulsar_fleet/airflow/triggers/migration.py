"""Waiting that holds no worker slot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0


class Awaited(StrEnum):
    """What a migration can wait for."""

    REPLICATED = "replicated"
    DRAINED = "drained"


class Status(StrEnum):
    """What a look found."""

    DONE = "done"
    WAITING = "waiting"
    INCIDENT = "incident"
    TIMEOUT = "timeout"
    ERROR = "error"


class MigrationTrigger(BaseTrigger):
    """Fires when namespaces have been replicated or drained, when something has to be treated, or when time is up.

    :param awaited: a value of `Awaited`.
    :param blue: connection id; connections are read here, so that no secret is in the trigger's arguments.
    :param moves: reference of the artefact that says what moves.
    :param run_id: of the run's records, where a watch keeps what it has seen.
    :param poll_seconds: between two looks; not below 5, since a task that resumes sooner can be marked failed.
    :param end: when to give up, seconds since the epoch: kept over restarts of the triggerer.
    """

    def __init__(
        self, *, awaited: str, blue: str, green: str, moves: JsonObject, run_id: str, poll_seconds: float, end: float
    ) -> None:
        BaseTrigger.__init__(self)
        self.awaited = awaited
        self.blue = blue
        self.green = green
        self.moves = moves
        self.run_id = run_id
        self.poll_seconds = poll_seconds
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Arguments for a trigger that does the same."""
        return (
            "pulsar_fleet.airflow.triggers.migration.MigrationTrigger",
            {
                "awaited": self.awaited,
                "blue": self.blue,
                "green": self.green,
                "moves": self.moves,
                "run_id": self.run_id,
                "poll_seconds": self.poll_seconds,
                "end": self.end,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, sleep, look again; one event in the end."""
        try:
            yield TriggerEvent(await self._watch())
        except (FleetError, AirflowNotFoundException) as error:
            yield TriggerEvent({"status": Status.ERROR.value, "message": str(error)})

    async def _watch(self) -> JsonObject:
        from pulsar_fleet.airflow.conf import moves_of
        from pulsar_fleet.airflow.hooks.pulsar import from_airflow
        from pulsar_fleet.ledger.run import Run
        from pulsar_fleet.migration.clusters import Sides

        sides = Sides(
            from_airflow(await BaseHook.aget_connection(self.blue)),
            from_airflow(await BaseHook.aget_connection(self.green)),
        )
        moves = await asyncio.to_thread(moves_of, self.moves)
        run = await asyncio.to_thread(Run.open, self.run_id)
        logged, line = 0.0, "not looked yet"
        while time.time() < self.end:
            await asyncio.sleep(self.poll_seconds)
            try:
                status, line = await look(Awaited(self.awaited), sides, run, moves)
            except Unavailable as error:
                # A broker that restarts is not a verdict: keep looking until time is up.
                status, line = Status.WAITING, str(error)
            if status is not Status.WAITING:
                return {"status": status.value, "message": line}
            if time.monotonic() - logged >= LOG_SECONDS:
                logged = time.monotonic()
                log.info("%s", line)
        return {"status": Status.TIMEOUT.value, "message": line}


async def look(awaited: Awaited, sides: Any, run: Any, moves: Any) -> tuple[Status, str]:
    """How it stands, and a line that says how far it is; changes nothing on the clusters."""
    from pulsar_fleet.migration.drain import steps as drain_steps
    from pulsar_fleet.migration.steps import replication_progress

    if awaited is Awaited.REPLICATED:
        done, line = await replication_progress(sides, moves)
        return Status.DONE if done else Status.WAITING, line
    found = await drain_steps.look(sides, run, moves)
    if found.needs_hand:
        # On a worker: it may write to the clusters and to the ledger, and hang with a client that hangs.
        return Status.DONE if found.is_done else Status.INCIDENT, found.line()
    return Status.WAITING, found.line()
