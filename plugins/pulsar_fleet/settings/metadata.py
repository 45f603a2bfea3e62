"""The settings of `sync_metadata`; a scheduled run uses the defaults, which an environment variable replaces."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import (
    allow_changes,
    clusters,
    granularity,
    partitioned_topics,
    propagate_deletes,
    selection,
    skew,
    tie_break,
)

_SETTINGS = {
    "clusters": clusters(
        1,
        "Connections of the clusters: one cluster of each metadata store. The first run needs "
        "all of them, to create the event topic.",
    ),
    "mode": setting(
        "report",
        type="string",
        enum=["report", "sync"],
        title="Mode",
        only_in_form=True,
        description="report compares the clusters, writes nothing and records nothing; sync carries the changes.",
    ),
    "selection": selection(),
    "event_topic": setting(
        "persistent://pulsar-fleet/metadata/events",
        type="string",
        pattern=r"^persistent://[^/]+/[^/]+/.+$",
        title="Event topic",
        description="The topic that the clusters share. Its own tenant and namespace are never synchronised.",
    ),
    "topics": setting(
        True, type="boolean", title="Policies of topics", description="Synchronise the policies of topics too."
    ),
    "partitioned_topics": partitioned_topics(),
    "propagate_deletes": propagate_deletes(),
    "allow_changes": allow_changes(),
    "granularity": granularity(),
    "tie_break": tie_break("at equal times"),
    "skew_seconds": skew(),
    "write_provenance": setting(
        False,
        type="boolean",
        title="Record the last update",
        description="Write the cluster and the time of the last change into each namespace's properties: "
        "`lastUpdatedBy`, `lastUpdatedTime`.",
    ),
    "snapshot": setting(
        False,
        type="boolean",
        title="Snapshot",
        description="Publish every resource once, each field with its original time, in this run. For a cluster that "
        "joins one is published in any case.",
    ),
    "snapshot_minutes": setting(
        60.0,
        type="number",
        minimum=0,
        title="Snapshots, minutes",
        description="How often a follower or a scheduled run publishes a snapshot of each cluster; 0: never.",
    ),
    "poll_seconds": setting(
        0.5,
        type="number",
        minimum=0,
        maximum=3600,
        title="Pause between scans, seconds",
        description="How long a follower waits between two scans of its cluster. A scan costs one call per namespace, "
        "with partitioned topics two, and two per topic.",
    ),
    "calls_per_second": setting(
        0,
        type="number",
        minimum=0,
        maximum=10000,
        title="Calls of a scan, per second",
        description="Rate limit of the scans of a synchronisation on each cluster; 0: no limit.",
    ),
    "idle_seconds": setting(
        2.0,
        type="number",
        minimum=0.1,
        maximum=600,
        title="Idle time, seconds",
        description="After this time without an event a run ends, unless events still wait for a cluster.",
    ),
}

SYNC_METADATA = Scheduled("PULSAR_FLEET_SYNC_METADATA", every="*/5 * * * *", declared=_SETTINGS)
