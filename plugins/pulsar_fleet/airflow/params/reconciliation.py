"""The settings of `reconcile_policies`; a scheduled run takes their defaults, which the environment can change."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airflow.sdk import Param

from pulsar_fleet.airflow.params.common import clusters_param, granularity_param, selection_param, tie_break_param
from pulsar_fleet.airflow.params.scheduled import defaults_from, schedule_from

VARIABLE = "PULSAR_FLEET_RECONCILE"
SCHEDULE = "*/5 * * * *"
SPARK_ABOVE = 100_000
"""Fewer namespaces are compared in the task before Spark has started."""
_TEXTS = {"type": "string"}

_PARAMS = {
    "clusters": clusters_param(2, "Connections of the clusters that are kept equal, one per line."),
    "selection": selection_param(),
    "mode": Param(
        "report",
        type="string",
        enum=["report", "repair", "dry_run"],
        title="Mode",
        description="report says what differs; repair writes it; dry_run shows what a repair would write and keeps "
        "nothing.",
    ),
    "authority": Param(
        "merge",
        type="string",
        pattern=r"^(merge|cluster:.+|file:.+)$",
        title="Authority",
        description="merge: all are equal, the latest change wins. cluster:NAME: that cluster, by its own name, is the "
        "truth. file:FOLDER: the YAML files of `pulsar-fleet export` are.",
    ),
    "granularity": granularity_param(),
    "tie_break": tie_break_param("when nobody can tell which is later"),
    "topics": Param(
        True, type="boolean", title="Policies of topics", description="Keep the policies of topics equal too."
    ),
    "propagate_deletes": Param(
        False,
        type="boolean",
        title="Carry deletions",
        description="Plan to delete empty namespaces and tenants that are gone elsewhere; each needs its id under "
        "allowed changes.",
    ),
    "allow_changes": Param(
        [],
        type="array",
        items=_TEXTS,
        title="Allowed changes",
        description="Ids of the irreversible or destructive changes that may be made, from the report of a run.",
    ),
    "choose": Param(
        [],
        type="array",
        items={"type": "string", "pattern": "^.+=.+$"},
        title="Choose",
        description="Take another cluster's value of a conflict after all: the conflict's id=the cluster's name.",
    ),
    "skew_seconds": Param(
        2.0,
        type="number",
        minimum=0,
        maximum=3600,
        title="Clock skew, seconds",
        description="Times that are closer count as equal, on top of what is measured of each cluster's clock.",
    ),
    "compare_with_spark_above": Param(
        SPARK_ABOVE,
        type=["integer", "null"],
        minimum=0,
        title="Compare with Spark above",
        description="Namespaces of a cluster above which a Spark job on the connection spark_default finds what is not "
        "alike. Empty: never. Desired state in files is compared without it.",
    ),
    "fail_on_drift": Param(
        False,
        type="boolean",
        title="Fail on drift",
        description="A run that leaves drift behind fails. A run that cannot reach a cluster fails in any case.",
    ),
}


def reconciliation_params(environment: Mapping[str, str] = os.environ) -> dict[str, Param]:
    """The form, with the defaults that PULSAR_FLEET_RECONCILE gives; one that cannot be meant is `InvalidRequest`."""
    return defaults_from(VARIABLE, _PARAMS, environment)


def reconciliation_schedule(environment: Mapping[str, str] = os.environ) -> str | None:
    """How often it runs; null in the variable for never by itself."""
    return schedule_from(VARIABLE, _PARAMS, environment, SCHEDULE)
