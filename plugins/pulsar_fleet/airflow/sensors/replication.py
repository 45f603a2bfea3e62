"""Sensor of replication; by default it waits without a worker slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import Context

from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.sensors.run_limit import RunLimitedSensor
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.airflow.triggers.replication import GROUPS, BacklogSentTrigger, unsent_backlog
from pulsar_fleet.cluster.text import duration

if TYPE_CHECKING:
    from pulsar_fleet.ledger.run import Run


class BacklogSentSensor(RunLimitedSensor):
    """Wait until links that end have sent what they have; skipped if none ends.

    After `drain_minutes` of the run's settings it fails, and the links stay.

    :param planned: result of the planning task (templated).
    :param poke_interval: seconds between two reads of the statistics, at least 5.
    """

    template_fields: Sequence[str] = ("planned",)
    setting = "drain_minutes"

    def __init__(self, *, planned: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned = planned

    async def missing(self, params: dict[str, Any], run: Run) -> str:
        """Read the statistics of the topics of ending links, which loads them."""
        if not self.planned["ends"]:
            raise AirflowSkipException("No link ends.")
        return await unsent_backlog({group: params[group] for group in GROUPS}, self.planned, run)

    def waited_seconds(self, run: Run) -> float:
        """For how long the run has waited for links that end."""
        from pulsar_fleet.replication import steps

        return steps.waited_seconds(run)

    def timed_out(self, figures: str) -> WaitTimedOut:
        """The error with what is not sent."""
        return WaitTimedOut(
            f"{figures} after {duration(float(self.timeout))}. Nothing has been ended: correct the cause, which "
            "`pulsar-fleet doctor` names, and start a new run."
        )

    def trigger(self, context: Context, end: float) -> BacklogSentTrigger:
        """The trigger that reads the statistics."""
        return BacklogSentTrigger(
            connections={group: list(context["params"][group]) for group in GROUPS},
            planned=self.planned,
            run_id=current_run(context).id,
            poll_seconds=float(self.poke_interval),
            until=self.end_of_wait(context, end),
            end=end,
        )
