"""Sensor of replication: it waits without a worker slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.tasks.replication import with_clusters

POKE_SECONDS = 15.0
_LONGEST_SECONDS = 14 * 86_400.0


class BacklogSentSensor(BaseSensorOperator):
    """Wait until links that end have sent what they have; skipped if none ends. It is rescheduled between polls.

    After `drain_minutes` of the run's settings it fails, and the links stay.

    :param planned: result of the planning task (templated).
    """

    template_fields: Sequence[str] = ("planned",)

    def __init__(self, *, planned: Any, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=POKE_SECONDS, timeout=_LONGEST_SECONDS, **kwargs)
        self.planned = planned

    def poke(self, context: Context) -> PokeReturnValue:
        """Read the statistics of the topics of ending links, which loads them."""
        from pulsar_fleet.cluster.errors import PreconditionFailed
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
            raise PreconditionFailed(
                f"{waiting} after {minutes} minutes. Nothing has been ended: correct the cause, which `pulsar-fleet "
                "doctor` names, and start a new run."
            )
        self.log.info("%s", waiting)
        return PokeReturnValue(is_done=False)
