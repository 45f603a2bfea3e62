"""The settings of `onboard_cluster`."""

from __future__ import annotations

from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import approval, connection, selection, waivers

SETTINGS = {
    "source": connection("pulsar_blue", "Source", "Connection of the cluster to copy. It is only read."),
    "target": connection("pulsar_green", "Target", "Connection of the cluster that receives the copy."),
    "selection": selection(),
    "subscriptions": setting(
        True,
        type="boolean",
        title="Create subscriptions",
        description="Create the source's subscriptions on the target, at the earliest message.",
    ),
    "expected_lag_hours": setting(
        0,
        type="integer",
        minimum=0,
        maximum=8760,
        title="Expected lag, hours",
        description="How long messages may wait on the source before they are copied later: retention, time to live "
        "and quotas are checked against it. 0: no messages will be copied.",
    ),
    "allow_changes": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Allowed changes",
        option="allow",
        description="Ids of the irreversible or destructive changes of the plan that are allowed, from a dry run.",
    ),
    "waivers": waivers(),
    **approval("the plan"),
    "compare_in_spark": setting(
        "auto",
        type="string",
        enum=["auto", "always", "never"],
        title="Compare in Spark",
        only_in_form=True,
        description="auto uses Spark from 2,000,000 rows on: fewer rows are compared in the task before Spark has "
        "started.",
    ),
    "dry_run": setting(False, type="boolean", title="Dry run", description="Show findings and plan; change nothing."),
}
