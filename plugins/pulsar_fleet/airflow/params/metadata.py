"""The settings of `sync_metadata`; a scheduled run takes their defaults, which the environment can change."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airflow.sdk import Param

from pulsar_fleet.airflow.params.common import clusters_param, granularity_param, selection_param, tie_break_param
from pulsar_fleet.airflow.params.scheduled import defaults_from, schedule_from

VARIABLE = "PULSAR_FLEET_SYNC_METADATA"
SCHEDULE = "*/5 * * * *"

_PARAMS = {
    "clusters": clusters_param(
        1,
        "Connections of the clusters, one per line: one of each metadata store. The first run needs "
        "all, to make the event topic.",
    ),
    "selection": selection_param(),
    "event_topic": Param(
        "persistent://pulsar-fleet/metadata/events",
        type="string",
        pattern=r"^persistent://[^/]+/[^/]+/.+$",
        title="Event topic",
        description="The topic that the clusters share; its tenant and namespace never travel themselves.",
    ),
    "topics": Param(True, type="boolean", title="Policies of topics", description="Carry the policies of topics too."),
    "granularity": granularity_param(),
    "tie_break": tie_break_param("at the same time"),
    "stamp": Param(
        False,
        type="boolean",
        title="Stamp",
        description="Write into each namespace's properties who wrote it last, and when: `lastUpdatedBy`, "
        "`lastUpdatedTime`.",
    ),
    "snapshot": Param(
        False,
        type="boolean",
        title="Snapshot",
        description="Publish every resource once, each field with its original time: for a cluster that joins.",
    ),
    "snapshot_minutes": Param(
        60.0,
        type="number",
        minimum=0,
        title="Snapshots, minutes",
        description="How often a follower publishes a snapshot by itself; 0: never. A scheduled run does so only with "
        "`snapshot`.",
    ),
    "poll_seconds": Param(
        0.5,
        type="number",
        minimum=0,
        maximum=3600,
        title="Pause between looks, seconds",
        description="How long a follower waits between two looks at its cluster, each a call for a namespace.",
    ),
    "calls_per_second": Param(
        0,
        type="number",
        minimum=0,
        maximum=10000,
        title="Calls of a look, per second",
        description="How many calls a look makes in a second at most, on each cluster; 0: as many as it answers.",
    ),
    "quiet_seconds": Param(
        2.0,
        type="number",
        minimum=0.1,
        maximum=600,
        title="Quiet, seconds",
        description="A run ends when no event came for so long.",
    ),
}


def metadata_params(environment: Mapping[str, str] = os.environ) -> dict[str, Param]:
    """The form, with the defaults that PULSAR_FLEET_SYNC_METADATA gives; one that cannot be meant is
    `InvalidRequest`.
    """
    return defaults_from(VARIABLE, _PARAMS, environment)


def metadata_schedule(environment: Mapping[str, str] = os.environ) -> str | None:
    """How often it runs; null in the variable for never by itself."""
    return schedule_from(VARIABLE, _PARAMS, environment, SCHEDULE)
