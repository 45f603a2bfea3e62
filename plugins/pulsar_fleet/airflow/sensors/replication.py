"""Sensor of replication; by default it waits without a worker slot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.airflow.tasks.replication import with_clusters


class BacklogSentSensor(BaseSensorOperator):
    """Wait until links that end have sent what they have; skipped if none ends.

    After `drain_minutes` of the run's settings it fails, and the links stay.

    :param planned: result of the planning task (templated).
    :param mode: `reschedule` or `poke`.
    :param poke_interval: seconds between two polls.
    :param timeout: seconds until it fails, if `drain_minutes` are longer.
    :param soft_fail: after either time skip the task instead.
    """

    template_fields: Sequence[str] = ("planned",)

    def __init__(
        self,
        *,
        planned: Any,
        mode: str = "reschedule",
        poke_interval: timedelta | float = 15.0,
        timeout: timedelta | float = timedelta(days=14),
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.planned = planned

    def poke(self, context: Context) -> PokeReturnValue:
        """Read the statistics of the topics of ending links, which loads them."""
        from pulsar_fleet.replication import steps
        from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

        stored, params = StoredReplicationPlan.from_json(self.planned), dict(context["params"])
        if not stored.ends:
            raise AirflowSkipException("No link ends.")
        run = current_run(context)
        waiting = with_clusters(params, lambda clusters: steps.backlog_of_ending_links(clusters, stored, run))
        if not waiting:
            return PokeReturnValue(is_done=True)
        minutes = params["drain_minutes"]
        if steps.waited_seconds(run) > minutes * 60:
            raise WaitTimedOut(
                f"{waiting} after {minutes} minutes. Nothing has been ended: correct the cause, which `pulsar-fleet "
                "doctor` names, and start a new run."
            )
        self.log.info("%s", waiting)
        return PokeReturnValue(is_done=False)
