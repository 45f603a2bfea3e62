"""Sensors of a migration; they wait without a worker slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from pulsar_fleet.airflow.conf import moves_of, procedure_of
from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.triggers.migration import MigrationTrigger, Milestone, Status
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.text import duration


class MigrationSensor(BaseSensorOperator):
    """Wait until namespaces are replicated to green, left by their applications, or drained on blue.

    :param milestone: what to wait for.
    :param blue: connection id of the old cluster (templated).
    :param green: connection id of the new cluster (templated).
    :param moves: reference of the artefact with the namespaces of the migration (templated).
    :param timeout_minutes: when to fail (templated); the message then says what is missing.
    :param poke_interval: seconds between two polls, at least 5.
    """

    template_fields: Sequence[str] = ("blue", "green", "moves", "timeout_minutes")

    def __init__(
        self,
        *,
        milestone: Milestone,
        blue: str,
        green: str,
        moves: Any,
        timeout_minutes: Any,
        poke_interval: float = POLL_SECONDS,
        **kwargs: Any,
    ) -> None:
        if poke_interval < POLL_SECONDS:
            raise InvalidRequest(f"poke_interval is {poke_interval} seconds; set it to {POLL_SECONDS:.0f} or more.")
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.milestone = milestone
        self.blue = blue
        self.green = green
        self.moves = moves
        self.timeout_minutes = timeout_minutes

    def execute(self, context: Context) -> str:
        """Poll once; defer to the trigger until the milestone is reached."""
        return self._poke_or_defer(context, time.time() + float(self.timeout_minutes) * 60)

    def resume(self, context: Context, event: JsonObject, end: float) -> str:
        """Take the trigger's event: finish, remediate incidents and defer again, or fail with what is missing."""
        status = Status(event["status"])
        if status is Status.TIMEOUT:
            raise PreconditionFailed(
                f"After {duration(float(self.timeout_minutes) * 60)} the namespaces are not {self.milestone.value}: "
                f"{event['message']}. Clear this task to wait again, or check the namespaces."
            )
        if status is Status.ERROR:
            raise PreconditionFailed(str(event["message"]))
        return self._poke_or_defer(context, end)

    def poke(self, context: Context) -> PokeReturnValue:
        """Poll once, and remediate what may be remediated without an operator; the value is a line of progress."""
        from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
        from pulsar_fleet.migration.clusters import Sides

        sides = Sides(cluster_connection(self.blue), cluster_connection(self.green))
        done, line = asyncio.run(monitor(self.milestone, sides, current_run(context), moves_of(self.moves)))
        self.log.info("%s", line)
        return PokeReturnValue(done, xcom_value=line)

    def _poke_or_defer(self, context: Context, end: float) -> str:
        poll = self.poke(context)
        if poll:
            return str(poll.xcom_value)
        self.defer(
            trigger=MigrationTrigger(
                milestone=self.milestone.value,
                blue=self.blue,
                green=self.green,
                moves=self.moves,
                run_id=current_run(context).id,
                poll_seconds=self.poke_interval,
                end=end,
            ),
            method_name="resume",
            kwargs={"end": end},
        )


class ChangeWindowSensor(BaseSensorOperator):
    """Wait for a change window, by the run's `change_windows` and `freeze_windows`, without a worker slot."""

    def execute(self, context: Context, event: Any = None) -> str:
        """Continue inside a window; else defer, renew the lease of the namespaces every two minutes and check again."""
        from pulsar_fleet.migration.prepare.lease import RENEW_SECONDS
        from pulsar_fleet.migration.waves.change_windows import Calendar

        params = context["params"]
        calendar = Calendar.parse(params["change_windows"], params["freeze_windows"])
        now = datetime.now(UTC)
        window = calendar.permission(now, "This wave")
        self.log.info("%s", window.sentence)
        if window.granted:
            return window.sentence
        if window.opens is None:
            raise PreconditionFailed(window.sentence)
        asyncio.run(procedure_of(context).keep_lease())
        again = min(window.opens, now + timedelta(seconds=RENEW_SECONDS))
        self.defer(trigger=DateTimeTrigger(moment=again), method_name="execute")


async def monitor(milestone: Milestone, sides: Any, run: Any, moves: Any) -> tuple[bool, str]:
    """Poll once and remediate; returns whether the milestone is reached, and a line of progress."""
    from pulsar_fleet.migration.drain import steps as drain_steps
    from pulsar_fleet.migration.repoint.steps import repoint_progress
    from pulsar_fleet.migration.steps import replication_progress

    if milestone is not Milestone.DRAINED:
        progress = replication_progress if milestone is Milestone.REPLICATED else repoint_progress
        return await progress(sides, run, moves)
    status = await drain_steps.monitor_drain(sides, run, moves)
    return status.is_done, status.line()
