"""### Reconcile the policies of clusters that share no metadata store

1. **Scan** — tenants, namespaces, partitioned topics and policies of topics are read on every cluster. Each value
   is stored with the time of the scan, since the admin API reports no times. Above `compare_with_spark_above`
   namespaces a Spark job finds the divergent ones.
2. **Merge** — field by field against the last agreed value: a change on one cluster is copied; after changes on several
   clusters the latest wins, and if no time is known, the cluster's name decides. The report lists the losing value,
   which can be chosen.
3. **Repair** — only different fields are written, with the hazards, the read-back and the journal of every change.
4. **Report** — differences by pair of clusters, conflicts, deleted resources, unreachable clusters.

The mode `report` changes no cluster. The page `docs/reconcile_policies.md` says what to do with the report.
"""

from __future__ import annotations

from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.
import pendulum

from pulsar_fleet.airflow.assets import POLICIES_CHANGED, announce_policies_changed
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.reconciliation import RECONCILIATION
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.reconciliation import RECONCILE

# read_request → find_drift → repair → write_report
reconcile_policies = procedure_dag(
    RECONCILIATION,
    schedule=RECONCILE.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.SPARK),
    settings=RECONCILE.settings(),
    doc_md=__doc__,
    tags=["pulsar", "reconciliation"],
    spark_jobs=Path(__file__).parents[1] / "spark_jobs",
    emits={"repair": (POLICIES_CHANGED, announce_policies_changed)},
)
