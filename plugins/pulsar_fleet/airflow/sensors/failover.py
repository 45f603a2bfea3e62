"""Sensor of a failover; by default it waits without a worker slot."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.airflow.tasks.failover import sides_of


class ApplicationsArrivedSensor(BaseSensorOperator):
    """Wait until applications have acknowledged on the target what the forecast has.

    Those that had consumers when the failover was announced; all, if none had. After `arrival_minutes` of the run's
    settings it fails and says what is missing; cleared, it looks once more.

    :param mode: `reschedule` or `poke`.
    :param poke_interval: seconds between two polls.
    :param timeout: seconds until it fails, if `arrival_minutes` are longer.
    :param soft_fail: after either time skip the task instead.
    """

    def __init__(
        self,
        *,
        mode: str = "reschedule",
        poke_interval: timedelta | float = 15.0,
        timeout: timedelta | float = timedelta(days=14),
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, poke_interval=poke_interval, timeout=timeout, **kwargs)

    def poke(self, context: Context) -> PokeReturnValue:
        """Read the cursors on the target, which loads the topics."""
        from pulsar_fleet.replication.failover import steps
        from pulsar_fleet.replication.failover.records import waited_seconds

        params, run = dict(context["params"]), current_run(context)
        waiting = asyncio.run(steps.arrival(*sides_of(params), run))
        if not waiting:
            return PokeReturnValue(is_done=True)
        minutes = params["arrival_minutes"]
        if waited_seconds(run) > minutes * 60:
            raise WaitTimedOut(
                f"After {minutes} minutes: {waiting}. When they have caught up, clear this task; what they got until "
                f"now says: pulsar-fleet failover-outcome {run.id}"
            )
        self.log.info("%s", waiting)
        return PokeReturnValue(is_done=False)
