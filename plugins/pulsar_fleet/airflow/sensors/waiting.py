"""What the sensors of this package have in common: where they wait, how long, and how they end."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowSkipException, conf
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from pulsar_fleet.airflow.triggers.waiting import Status, WaitTrigger
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.polling import POLL_SECONDS, ShownLines
from pulsar_fleet.cluster.text import duration

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from pulsar_fleet.airflow.triggers.waiting import OpenLook
    from pulsar_fleet.cluster.json import JsonObject

_LATE_SECONDS = 60.0
"""The scheduler ends a deferred task so long after its timeout, if no triggerer did."""


class WaitTimedOut(PreconditionFailed, AirflowSensorTimeout):
    """The condition did not hold within the timeout: Airflow retries nothing, and `soft_fail` skips the task."""


class WaitingSensor(BaseSensorOperator):
    """Wait on a worker or in the triggerer, with the settings that every sensor of Airflow has.

    :param deferrable: wait in the triggerer, without a worker slot; default `[operators] default_deferrable`.
    :param mode: if it does not defer: `poke` keeps the worker slot, `reschedule` frees it between two reads.
    :param poke_interval: seconds between two reads, at least 5.
    :param timeout: seconds until the task fails, without a retry; the message has the last figures.
    :param soft_fail: after `timeout` skip the task instead.
    """

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.poke_interval < POLL_SECONDS:
            raise InvalidRequest(
                f"poke_interval is {self.poke_interval} seconds; set it to {POLL_SECONDS:.0f} or more."
            )
        self.deferrable = deferrable
        self._figures, self._shown = "", ShownLines()

    @abstractmethod
    def read(self, context: Context) -> tuple[bool, str]:
        """Whether the condition holds, and a line with the figures."""

    @abstractmethod
    def trigger(self, context: Context, end: float) -> BaseTrigger:
        """What waits in the triggerer.

        :param end: of the timeout, seconds since the epoch.
        """

    def look_again(self, look: OpenLook, arguments: JsonObject, end: float, until: float | None = None) -> WaitTrigger:
        """The trigger that looks until `until`, by default the end of the timeout."""
        interval = float(self.poke_interval)
        return WaitTrigger(look=look, arguments=arguments, poll_seconds=interval, until=until or end, end=end)

    def require_done(self, event: JsonObject) -> None:
        """Fail with what the trigger says of a timeout, or of what cannot be read."""
        if event["status"] == Status.TIMEOUT:
            raise self.timed_out(str(event["message"]))
        if event["status"] == Status.ERROR:
            raise PreconditionFailed(str(event["message"]))

    def timed_out(self, figures: str) -> WaitTimedOut:
        """The error at the end of the timeout."""
        return WaitTimedOut(f"After {duration(float(self.timeout))}: {figures}.")

    def poke(self, context: Context) -> PokeReturnValue:
        """Read once; the value is the line with the figures."""
        done, self._figures = self.read(context)
        if self._shown.is_due(self._figures):
            self.log.info("%s", self._figures)
        return PokeReturnValue(done, xcom_value=self._figures)

    def execute(self, context: Context) -> Any:
        """Wait here, or read once and defer."""
        defers = self.deferrable
        if defers is None:
            defers = conf.getboolean("operators", "default_deferrable", fallback=False)
        try:
            if not defers:
                return super().execute(context)
            return self.poke_or_defer(context, time.time() + float(self.timeout))
        except WaitTimedOut as error:
            # Of a deferred task Airflow skips what fails after it resumed; the first read is ours to skip.
            if self.soft_fail:
                raise AirflowSkipException(str(error)) from error
            raise
        except AirflowSensorTimeout as error:
            raise self.timed_out(self._figures) from error

    def poke_or_defer(self, context: Context, end: float) -> Any:
        """Read once, and defer until the trigger has an event; `resume` gets it.

        Airflow's `dag.test()` passes no other argument to a deferred task (3.3.2): the event has `end` if it is needed.
        """
        poll = self.poke(context)
        if poll:
            return poll.xcom_value
        remaining = end - time.time()
        if remaining <= 0:
            raise self.timed_out(self._figures)
        self.defer(
            trigger=self.trigger(context, end),
            method_name="resume",
            timeout=timedelta(seconds=remaining + _LATE_SECONDS),
        )
