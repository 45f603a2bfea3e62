"""Sensor of a failover; by default it waits without a worker slot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from pulsar_fleet.airflow.sensors.run_limit import RunLimitedSensor
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.cluster.text import command_line, duration

if TYPE_CHECKING:
    from pulsar_fleet.ledger.run import Run


class ApplicationsArrivedSensor(RunLimitedSensor):
    """Wait until applications have acknowledged on the target what the forecast has.

    Those that had consumers when the failover was announced; all, if none had. After `arrival_minutes` of the run's
    settings it fails and says what is missing; cleared, it looks once more. It reads on a worker, since it reads
    messages, and is in the triggerer between two reads.

    :param poke_interval: seconds between two reads, at least 5.
    """

    setting = "arrival_minutes"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._run_id = ""

    async def missing(self, params: dict[str, Any], run: Run) -> str:
        """Read the cursors on the target, which loads the topics."""
        from pulsar_fleet.airflow.hooks.pulsar import aread_connection
        from pulsar_fleet.replication.failover import steps

        self._run_id = run.id
        origin, target = await aread_connection(params["origin"]), await aread_connection(params["target"])
        return await steps.arrival(origin, target, run)

    def waited_seconds(self, run: Run) -> float:
        """For how long the run has waited for applications."""
        from pulsar_fleet.replication.failover.records import waited_seconds

        return waited_seconds(run)

    def timed_out(self, figures: str) -> WaitTimedOut:
        """The error with the applications that are missing."""
        return WaitTimedOut(
            f"After {duration(float(self.timeout))}: {figures}. When they have caught up, clear this task; what they "
            f"got until now says: {command_line('failover-outcome', self._run_id)}"
        )

    def trigger(self, context: Context, end: float) -> MomentTrigger:
        """Until the next read, or the end of the wait."""
        again = time.time() + float(self.poke_interval)
        return MomentTrigger(moment=min(again, self.end_of_wait(context, end)), end=end)
