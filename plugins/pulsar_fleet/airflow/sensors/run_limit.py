"""What the sensors share that wait as long as a setting of the run says."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.sensors.waiting import WaitingSensor
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.polling import POLL_SECONDS

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run


class RunLimitedSensor(WaitingSensor):
    """Wait for as many minutes as a setting of the run says, over all tries; cleared, it looks once more.

    :param deferrable: wait in the triggerer, without a worker slot; the default.
    :param mode: if it does not defer: `reschedule` or `poke`.
    :param timeout: seconds until it fails, if the setting is longer.
    """

    setting: str
    """The key of the run's configuration with the minutes."""

    def __init__(
        self,
        *,
        deferrable: bool = True,
        mode: str = "reschedule",
        poke_interval: timedelta | float = 15.0,
        timeout: timedelta | float = timedelta(days=14),
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, mode=mode, poke_interval=poke_interval, timeout=timeout, **kwargs)

    @abstractmethod
    async def missing(self, params: dict[str, Any], run: Run) -> str:
        """What is still missing, in a sentence; empty if nothing is."""

    @abstractmethod
    def waited_seconds(self, run: Run) -> float:
        """For how long the run has waited; the first call begins to count."""

    def read(self, context: Context) -> tuple[bool, str]:
        """Whether nothing is missing; fails after the minutes of the setting."""
        params, run = dict(context["params"]), current_run(context)
        try:
            figures = asyncio.run(self.missing(params, run))
        except Unavailable as error:
            # A broker may restart: keep reading until the timeout.
            figures = str(error)
        if figures and self.remaining_seconds(context) <= 0:
            raise self.timed_out(figures)
        return not figures, figures

    def remaining_seconds(self, context: Context) -> float:
        """Until the minutes of the setting have passed."""
        limit = float(context["params"][self.setting]) * 60
        self.timeout = min(float(self.timeout), limit)
        return limit - self.waited_seconds(current_run(context))

    def end_of_wait(self, context: Context, end: float) -> float:
        """The earlier one of both limits, seconds since the epoch; a task that resumes at once can be marked failed."""
        return time.time() + max(POLL_SECONDS, min(end - time.time(), self.remaining_seconds(context)))

    def resume(self, context: Context, event: JsonObject) -> Any:
        """Look again: the newest figures decide."""
        return self.poke_or_defer(context, float(event["end"]))
