"""Operators that wait for a migration without holding a worker slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseOperator, Context

from pulsar_fleet.airflow.conf import moves_of
from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.triggers.migration import Awaited, MigrationTrigger, Status
from pulsar_fleet.cluster.errors import PreconditionFailed
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
        return self._attend(context, time.time() + float(self.timeout_minutes) * 60)

    def resume(self, context: Context, event: JsonObject, end: float) -> str:
        """Take the trigger's answer: end, treat what goes wrong and wait on, or fail with what is missing."""
        status = Status(event["status"])
        if status is Status.TIMEOUT:
            raise PreconditionFailed(
                f"After {self.timeout_minutes} minutes it has not {self.awaited.value}: {event['message']}. "
                "Clear this task to wait on, or look at what it waits for."
            )
        if status is Status.ERROR:
            raise PreconditionFailed(str(event["message"]))
        return self._attend(context, end)

    def _attend(self, context: Context, end: float) -> str:
        from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
        from pulsar_fleet.migration.clusters import Sides

        run = current_run(context)
        sides = Sides(cluster_connection(self.blue), cluster_connection(self.green))
        done, line = asyncio.run(attend(self.awaited, sides, run, moves_of(self.moves)))
        self.log.info("%s", line)
        if done:
            return line
        self.defer(
            trigger=MigrationTrigger(
                awaited=self.awaited.value,
                blue=self.blue,
                green=self.green,
                moves=self.moves,
                run_id=run.id,
                poll_seconds=POLL_SECONDS,
                end=end,
            ),
            method_name="resume",
            kwargs={"end": end},
        )


class ChangeWindowSensor(BaseOperator):
    """Wait until topics may be switched, by the run's `change_windows` and `freeze_windows`, without a worker slot."""

    def execute(self, context: Context, event: Any = None) -> str:
        """Go on inside of a window; else leave the worker until one opens, and look again then."""
        from pulsar_fleet.migration.waves.change_windows import Calendar

        params = context["params"]
        calendar = Calendar.parse(params["change_windows"], params["freeze_windows"])
        found = calendar.permission(datetime.now(UTC), "This wave")
        self.log.info("%s", found.sentence)
        if found.granted:
            return found.sentence
        if found.opens is None:
            raise PreconditionFailed(found.sentence)
        self.defer(trigger=DateTimeTrigger(moment=found.opens), method_name="execute")


async def attend(awaited: Awaited, sides: Any, run: Any, moves: Any) -> tuple[bool, str]:
    """Look once, treat what may be treated by itself; whether it has come, and a line that says how far it is."""
    from pulsar_fleet.migration.drain import steps as drain_steps
    from pulsar_fleet.migration.steps import replication_progress

    if awaited is Awaited.REPLICATED:
        return await replication_progress(sides, moves)
    found = await drain_steps.attend(sides, run, moves)
    return found.is_done, found.line()
