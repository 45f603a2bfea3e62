"""The settings of `reconcile_policies`; a scheduled run uses the defaults, which an environment variable replaces."""

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

SPARK_ABOVE = 100_000
"""Fewer namespaces are compared in the task before Spark has started."""

_SETTINGS = {
    "clusters": clusters(2, "Connections of the clusters whose policies are reconciled."),
    "selection": selection(),
    "mode": setting(
        "report",
        type="string",
        enum=["report", "repair", "dry_run"],
        title="Mode",
        description="report lists the differences; repair writes them; dry_run shows what a repair would write and "
        "stores nothing.",
    ),
    "authority": setting(
        "merge",
        type="string",
        pattern=r"^(merge|cluster:.+|file:.+)$",
        title="Authority",
        description="Where the desired state comes from. merge: all clusters, the latest change wins. cluster:NAME: "
        "the cluster with this name. file:FOLDER: the YAML files of `pulsar-fleet export`.",
    ),
    "granularity": granularity(),
    "tie_break": tie_break("when no change is known to be the later one"),
    "topics": setting(
        True, type="boolean", title="Policies of topics", description="Reconcile the policies of topics too."
    ),
    "partitioned_topics": partitioned_topics(),
    "propagate_deletes": propagate_deletes(),
    "allow_changes": allow_changes(),
    "choose": setting(
        [],
        type="array",
        items={"type": "string", "pattern": "^.+=.+$"},
        title="Choose",
        description="Choose another cluster's value for a conflict: conflict id=cluster name.",
    ),
    "skew_seconds": skew(),
    "compare_with_spark_above": setting(
        SPARK_ABOVE,
        type=["integer", "null"],
        minimum=0,
        title="Compare with Spark above",
        only_in_form=True,
        description="Number of namespaces per cluster above which a Spark job on the connection spark_default finds "
        "the divergent resources. Empty: never. Desired state in files is always compared without Spark.",
    ),
    "fail_on_drift": setting(
        False,
        type="boolean",
        title="Fail on drift",
        only_in_form=True,
        description="Fail the run if drift remains. A run that cannot reach a cluster always fails.",
    ),
}

RECONCILE = Scheduled("PULSAR_FLEET_RECONCILE", every="*/5 * * * *", declared=_SETTINGS)
