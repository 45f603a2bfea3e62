"""The form and the schedule of `watch_overrides`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airflow.sdk import Param

from pulsar_fleet.airflow.params.scheduled import defaults_from, schedule_from

VARIABLE = "PULSAR_FLEET_WATCH"
"""JSON object with other defaults, and the schedule."""
SCHEDULE = "*/10 * * * *"

_PARAMS: Mapping[str, Param] = {
    "clusters": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Clusters",
        description="Connection ids of the clusters to watch. Without one the run is skipped.",
    ),
    "restore": Param(
        True,
        type="boolean",
        title="Restore",
        description="Restore what a dead run left. Replication that it began goes on.",
    ),
}


def watch_params(environment: Mapping[str, str] = os.environ) -> dict[str, Param]:
    """The form, with the defaults of PULSAR_FLEET_WATCH; an invalid default raises `InvalidRequest`."""
    return defaults_from(VARIABLE, _PARAMS, environment)


def watch_schedule(environment: Mapping[str, str] = os.environ) -> str | None:
    """The schedule of the DAG; null in the variable turns it off."""
    return schedule_from(VARIABLE, _PARAMS, environment, SCHEDULE)
