"""The settings of `reconcile_policies`; a scheduled run uses the defaults, which an environment variable replaces."""

from __future__ import annotations

from pulsar_fleet.airflow.params.common import (
    allow_changes_param,
    clusters_param,
    granularity_param,
    partitioned_topics_param,
    propagate_deletes_param,
    selection_param,
    setting,
    skew_param,
    tie_break_param,
)
from pulsar_fleet.airflow.params.scheduled import Scheduled

SPARK_ABOVE = 100_000
"""Fewer namespaces are compared in the task before Spark has started."""

_SETTINGS = {
    "clusters": clusters_param(2, "Connections of the clusters whose policies are reconciled, one per line."),
    "selection": selection_param(),
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
    "granularity": granularity_param(),
    "tie_break": tie_break_param("when no change is known to be the later one"),
    "topics": setting(
        True, type="boolean", title="Policies of topics", description="Reconcile the policies of topics too."
    ),
    "partitioned_topics": partitioned_topics_param(),
    "propagate_deletes": propagate_deletes_param(),
    "allow_changes": allow_changes_param(),
    "choose": setting(
        [],
        type="array",
        items={"type": "string", "pattern": "^.+=.+$"},
        title="Choose",
        description="Choose another cluster's value for a conflict: conflict id=cluster name.",
    ),
    "skew_seconds": skew_param(),
    "compare_with_spark_above": setting(
        SPARK_ABOVE,
        type=["integer", "null"],
        minimum=0,
        title="Compare with Spark above",
        description="Number of namespaces per cluster above which a Spark job on the connection spark_default finds "
        "the divergent resources. Empty: never. Desired state in files is always compared without Spark.",
    ),
    "fail_on_drift": setting(
        False,
        type="boolean",
        title="Fail on drift",
        description="Fail the run if drift remains. A run that cannot reach a cluster always fails.",
    ),
}

RECONCILE = Scheduled("PULSAR_FLEET_RECONCILE", every="*/5 * * * *", settings=_SETTINGS)
