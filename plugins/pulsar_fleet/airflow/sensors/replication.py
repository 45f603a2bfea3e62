"""Sensor of replication; by default it waits without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import Context

from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.sensors.run_limit import RunLimitedSensor
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.cluster.text import duration

if TYPE_CHECKING:
    from pulsar_fleet.airflow.triggers.waiting import Look, WaitTrigger
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run

GROUPS = ("clusters", "receive_only", "leaving")
"""The settings with connection ids: members, clusters that only receive, clusters that leave."""


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

    def trigger(self, context: Context, end: float) -> WaitTrigger:
        """The trigger that reads the statistics."""
        arguments = {
            "connections": {group: list(context["params"][group]) for group in GROUPS},
            "planned": self.planned,
            "run_id": current_run(context).id,
        }
        return self.look_again(open_backlog, arguments, end, until=self.end_of_wait(context, end))


async def open_backlog(connections: Mapping[str, Sequence[str]], planned: JsonObject, run_id: str) -> Look:
    """The looks of a trigger that waits for ending links."""
    from pulsar_fleet.ledger.run import Run

    run = await asyncio.to_thread(Run.open, run_id)

    async def look() -> tuple[bool, str]:
        figures = await unsent_backlog(connections, planned, run)
        return not figures, figures

    return look


async def unsent_backlog(connections: Mapping[str, Sequence[str]], planned: JsonObject, run: Run) -> str:
    """What still has to be sent before links may end, in a sentence; empty if nothing."""
    from pulsar_fleet.airflow.hooks.pulsar import aread_connection
    from pulsar_fleet.replication import steps
    from pulsar_fleet.replication.clusters import open_clusters
    from pulsar_fleet.replication.setup.plan import StoredReplicationPlan

    groups = [[await aread_connection(name) for name in connections[group]] for group in GROUPS]
    async with open_clusters(*groups) as clusters:
        return await steps.backlog_of_ending_links(clusters, StoredReplicationPlan.from_json(planned), run)
