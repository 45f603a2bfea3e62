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

from pulsar_fleet.cluster.errors import FleetError, Transient
from pulsar_fleet.cluster.json import JsonObject

log = logging.getLogger(__name__)

LOG_SECONDS = 10.0


class Awaited(StrEnum):
    """What a migration can wait for."""

    REPLICATED = "replicated"
    DRAINED = "drained"


class MigrationTrigger(BaseTrigger):
    """Fires when namespaces have been replicated or drained, when that cannot happen any more, or when time is up.

    :param awaited: a value of `Awaited`.
    :param blue: connection id; connections are read here, so that no secret is in the trigger's arguments.
    :param moves: reference of the artefact that says what moves.
    :param poll_seconds: between two looks; not below 5, since a task that resumes sooner can be marked failed.
    :param end: when to give up, seconds since the epoch: kept over restarts of the triggerer.
    """

    def __init__(
        self, *, awaited: str, blue: str, green: str, moves: JsonObject, poll_seconds: float, end: float
    ) -> None:
        BaseTrigger.__init__(self)
        self.awaited = awaited
        self.blue = blue
        self.green = green
        self.moves = moves
        self.poll_seconds = poll_seconds
        self.end = end

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Arguments for a trigger that does the same."""
        return (
            "pulsar_fleet.airflow.triggers.MigrationTrigger",
            {
                "awaited": self.awaited,
                "blue": self.blue,
                "green": self.green,
                "moves": self.moves,
                "poll_seconds": self.poll_seconds,
                "end": self.end,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, sleep, look again; one event in the end."""
        try:
            yield TriggerEvent(await self._watch())
        except (FleetError, AirflowNotFoundException) as error:
            yield TriggerEvent({"status": "error", "message": str(error)})

    async def _watch(self) -> JsonObject:
        from pulsar_fleet.airflow.connection import from_airflow
        from pulsar_fleet.migration.moves import Moves
        from pulsar_fleet.migration.steps import Sides
        from pulsar_fleet.records.artefacts import Artefacts, Reference

        sides = Sides(
            from_airflow(await BaseHook.aget_connection(self.blue)),
            from_airflow(await BaseHook.aget_connection(self.green)),
        )
        document = await asyncio.to_thread(Artefacts.open().read_json, Reference.from_json(self.moves))
        moves = Moves.from_json(document)
        logged, line = 0.0, "not looked yet"
        while time.time() < self.end:
            await asyncio.sleep(self.poll_seconds)
            try:
                done, line = await look(Awaited(self.awaited), sides, moves)
            except Transient as error:
                # A broker that restarts is not a verdict: keep looking until time is up.
                done, line = False, str(error)
            if done:
                return {"status": "done", "message": line}
            if time.monotonic() - logged >= LOG_SECONDS:
                logged = time.monotonic()
                log.info("%s", line)
        return {"status": "timeout", "message": line}


async def look(awaited: Awaited, sides: Any, moves: Any) -> tuple[bool, str]:
    """Whether what is awaited has come, and a line that says how far it is.

    :raises Refused: it cannot come any more.
    """
    from pulsar_fleet.migration.steps import drain_progress, replication_progress
    from pulsar_fleet.migration.watch import require_loaded

    if awaited is Awaited.REPLICATED:
        return await replication_progress(sides, moves)
    found = await drain_progress(sides, moves)
    require_loaded(found)
    return all(state.is_done for state in found), " · ".join(state.line() for state in found)
