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
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.drift import FindDriftOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import reconciliation
from pulsar_fleet.settings.reconciliation import RECONCILE


@dag(
    schedule=RECONCILE.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    params=form(RECONCILE.settings()),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "reconciliation"],
    **run_alerts("reconcile_policies"),
)
def reconcile_policies():
    drift = FindDriftOperator(
        task_id="find_drift",
        application=str(Path(__file__).parents[1] / "spark_jobs" / "compare_snapshots.py"),
        name="compare-snapshots",
        driver_memory="1g",
    )
    reconciliation.read_request() >> drift
    reconciliation.repair(drift=drift.output) >> reconciliation.write_report()


reconcile_policies()
