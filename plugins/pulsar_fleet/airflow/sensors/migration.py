"""Sensors of a migration; by default they wait without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from pulsar_fleet.airflow.conf import moves_of, procedure_of
from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.sensors.waiting import WaitingSensor, WaitTimedOut
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.airflow.triggers.waiting import Look, WaitTrigger
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.text import duration

if TYPE_CHECKING:
    from pulsar_fleet.migration.waves.change_windows import Permission
    from pulsar_fleet.procedures.copy_wait import CopyWait

_LONGEST_CHECK_SECONDS = 300


class Milestone(StrEnum):
    """What a migration can wait for."""

    REPLICATED = "replicated"
    REPOINTED = "repointed"
    DRAINED = "drained"


class MigrationSensor(WaitingSensor):
    """Wait until namespaces are replicated to green, left by their applications, or drained on blue.

    A retry waits again from the beginning; incidents of the drain are remediated on a worker.

    :param milestone: what to wait for.
    :param blue: connection id of the old cluster (templated).
    :param green: connection id of the new cluster (templated).
    :param moves: reference of the artefact with the namespaces of the migration (templated).
    :param timeout_minutes: `timeout` in minutes (templated); set one of both. The message then says what is missing.
    :param deferrable: wait in the triggerer, without a worker slot; the default.
    """

    template_fields: Sequence[str] = ("blue", "green", "moves", "timeout_minutes")

    def __init__(
        self,
        *,
        milestone: Milestone,
        blue: str,
        green: str,
        moves: Any,
        timeout_minutes: Any = None,
        timeout: timedelta | float | None = None,
        poke_interval: timedelta | float = POLL_SECONDS,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        if timeout is not None and timeout_minutes is not None:
            raise InvalidRequest("Set timeout or timeout_minutes, and not both.")
        super().__init__(timeout=timeout, poke_interval=poke_interval, deferrable=deferrable, **kwargs)
        self.milestone = milestone
        self.blue = blue
        self.green = green
        self.moves = moves
        self.timeout_minutes = timeout_minutes
        self._copy: CopyWait | None = None

    def execute(self, context: Context) -> Any:
        """Wait here; or poll once, and defer to the trigger until the milestone is reached."""
        self._render_timeout()
        return super().execute(context)

    def resume(self, context: Context, event: JsonObject) -> Any:
        """Take the trigger's event: finish, remediate incidents and defer again, or fail with what is missing."""
        self._render_timeout()
        self.require_done(event)
        return self.poke_or_defer(context, float(event["end"]))

    def timed_out(self, figures: str) -> WaitTimedOut:
        """The error with what is missing."""
        return WaitTimedOut(
            f"After {duration(float(self.timeout))} the namespaces are not {self.milestone.value}: "
            f"{figures}. Clear this task to wait again, or check the namespaces."
        )

    def read(self, context: Context) -> tuple[bool, str]:
        """Poll once, and remediate what may be remediated without an operator."""
        from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
        from pulsar_fleet.migration.clusters import Sides
        from pulsar_fleet.procedures.copy_wait import CopyWait

        if self._copy is None:
            sides = Sides(cluster_connection(self.blue), cluster_connection(self.green))
            self._copy = CopyWait(sides, current_run(context), moves_of(self.moves))
        try:
            return asyncio.run(monitor(self.milestone, self._copy))
        except Unavailable as error:
            # A broker may restart: keep polling until the timeout.
            return False, str(error)

    def trigger(self, context: Context, end: float) -> WaitTrigger:
        """The trigger that polls and remediates nothing."""
        sides, run_id = {"blue": self.blue, "green": self.green}, current_run(context).id
        arguments = {"milestone": self.milestone.value, **sides, "moves": self.moves, "run_id": run_id}
        return self.look_again(open_milestone, arguments, end)

    def _render_timeout(self) -> None:
        if self.timeout_minutes is not None:
            self.timeout = float(self.timeout_minutes) * 60


class ChangeWindowSensor(WaitingSensor):
    """Wait for a change window, by the run's `change_windows` and `freeze_windows`; a retry waits again.

    :param deferrable: wait in the triggerer, without a worker slot; the default.
    :param poke_interval: seconds between two checks, 5 to 300: a check renews the lease of the namespaces.
    :param timeout: seconds until the task fails, or is skipped with `soft_fail`; default: a year.
    """

    def __init__(
        self,
        *,
        deferrable: bool = True,
        poke_interval: timedelta | float = 120.0,
        timeout: timedelta | float = timedelta(days=366),
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, poke_interval=poke_interval, timeout=timeout, **kwargs)
        if self.poke_interval > _LONGEST_CHECK_SECONDS:
            raise InvalidRequest(
                f"poke_interval is {self.poke_interval} seconds; set it to {_LONGEST_CHECK_SECONDS} or less: a check "
                "renews the lease of the namespaces, which ends after 10 minutes."
            )

    def read(self, context: Context) -> tuple[bool, str]:
        """Whether a window is open; else renew the lease of the namespaces.

        :raises PreconditionFailed: no window opens any more.
        """
        window = self._window(context)
        if not window.granted:
            if window.opens is None:
                raise PreconditionFailed(window.sentence)
            asyncio.run(procedure_of(context).keep_lease())
        return window.granted, window.sentence

    def trigger(self, context: Context, end: float) -> MomentTrigger:
        """Until the window opens, the lease must be renewed or the timeout ends."""
        now = datetime.now(UTC)
        opens = self._window(context).opens or now
        again = now + timedelta(seconds=float(self.poke_interval))
        return MomentTrigger(moment=min(opens.timestamp(), again.timestamp(), end), end=end)

    def resume(self, context: Context, event: JsonObject) -> Any:
        """Check again."""
        return self.poke_or_defer(context, float(event["end"]))

    def _window(self, context: Context) -> Permission:
        from pulsar_fleet.migration.waves.change_windows import Calendar

        params = context["params"]
        calendar = Calendar.parse(params["change_windows"], params["freeze_windows"])
        return calendar.permission(datetime.now(UTC), "This wave")


async def open_milestone(milestone: str, blue: str, green: str, moves: JsonObject, run_id: str) -> Look:
    """The looks of a trigger that waits for a milestone, or for an incident that a worker has to remediate."""
    from pulsar_fleet.airflow.hooks.pulsar import aread_connection
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.procedures.copy_wait import CopyWait

    sides = Sides(await aread_connection(blue), await aread_connection(green))
    planned, run = await asyncio.to_thread(moves_of, moves), await asyncio.to_thread(Run.open, run_id)
    return partial(poll, Milestone(milestone), CopyWait(sides, run, planned))


async def poll(milestone: Milestone, copy: CopyWait) -> tuple[bool, str]:
    """Whether a worker must go on, and a line of progress; changes nothing but cursors on green that no consumer uses.

    Remediation runs on a worker: it writes to the clusters and to the ledger, and can block with a client.
    """
    from pulsar_fleet.migration.drain import steps as drain_steps

    if milestone is not Milestone.DRAINED:
        return await _progress(milestone, copy)
    status = await drain_steps.poll_drain(copy.sides, copy.run, copy.moves)
    return status.needs_worker, status.line()


async def monitor(milestone: Milestone, copy: CopyWait) -> tuple[bool, str]:
    """Poll once and remediate; returns whether the milestone is reached, and a line of progress."""
    from pulsar_fleet.migration.drain import steps as drain_steps

    if milestone is not Milestone.DRAINED:
        return await _progress(milestone, copy)
    status = await drain_steps.monitor_drain(copy.sides, copy.run, copy.moves)
    return status.is_done, status.line()


async def _progress(milestone: Milestone, copy: CopyWait) -> tuple[bool, str]:
    from pulsar_fleet.migration.repoint.steps import repoint_progress

    if milestone is Milestone.REPLICATED:
        return await copy.look()
    return await repoint_progress(copy.sides, copy.run, copy.moves)
