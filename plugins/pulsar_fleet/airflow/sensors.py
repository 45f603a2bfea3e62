"""Operators that wait for a migration without holding a worker slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from pulsar_fleet.airflow.triggers import Awaited, MigrationTrigger, look
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import JsonObject

POLL_SECONDS = 5.0


class MigrationSensor(BaseOperator):
    """Wait until namespaces have been replicated to green, or drained on blue with their clients on green.

    :param awaited: what to wait for.
    :param blue: connection id of the old cluster (templated).
    :param green: connection id of the new cluster (templated).
    :param moves: reference of the artefact that says what moves (templated).
    :param timeout_minutes: when to give up (templated); the message then says what is still missing.
    """

    template_fields: Sequence[str] = ("blue", "green", "moves", "timeout_minutes")

    def __init__(
        self, *, awaited: Awaited, blue: str, green: str, moves: Any, timeout_minutes: Any, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.awaited = awaited
        self.blue = blue
        self.green = green
        self.moves = moves
        self.timeout_minutes = timeout_minutes

    def execute(self, context: Context) -> str:
        """Look once; if it has not come yet, leave the worker until it has."""
        from pulsar_fleet.airflow.connection import cluster_connection
        from pulsar_fleet.migration.moves import Moves
        from pulsar_fleet.migration.steps import Sides
        from pulsar_fleet.records.artefacts import Artefacts, Reference

        sides = Sides(cluster_connection(self.blue), cluster_connection(self.green))
        moves = Moves.from_json(Artefacts.open().read_json(Reference.from_json(self.moves)))
        done, line = asyncio.run(look(self.awaited, sides, moves))
        self.log.info("%s", line)
        if done:
            return line
        self.defer(
            trigger=MigrationTrigger(
                awaited=self.awaited.value,
                blue=self.blue,
                green=self.green,
                moves=self.moves,
                poll_seconds=POLL_SECONDS,
                end=time.time() + float(self.timeout_minutes) * 60,
            ),
            method_name="resume",
        )

    def resume(self, context: Context, event: JsonObject) -> str:
        """Take the trigger's answer: go on, or fail with what is missing."""
        if event["status"] == "done":
            return str(event["message"])
        if event["status"] == "timeout":
            raise Refused(
                f"After {self.timeout_minutes} minutes it has not {self.awaited.value}: {event['message']}. "
                "Clear this task to wait on, or look at what it waits for."
            )
        raise Refused(str(event["message"]))
