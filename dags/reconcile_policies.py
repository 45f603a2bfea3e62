"""### Keep the policies of clusters equal that share no metadata store

1. **Look** — tenants, namespaces, and policies of topics are read on every cluster: one call for a namespace. What is
   seen is kept with its time, since the admin API tells none. Where there are very many namespaces
   (`compare_with_spark_above`), a Spark job says which are not alike.
2. **Merge** — field by field against the last agreed value: one side moved, it is carried; both moved apart, the later
   one wins, and where nobody can tell, the cluster's name. The loser is kept in the report and can be chosen.
3. **Repair** — only fields that differ are written, with the hazards, the read-back and the journal of every change.
4. **Report** — differences by pair of clusters, conflicts, what is gone, who could not be reached.

The mode `report` writes nothing on any cluster. The page `docs/reconcile_policies.md` says what to do then.
"""

from __future__ import annotations

from pathlib import Path

import pendulum
from airflow.sdk import dag

from pulsar_fleet.airflow.operators.drift import FindDriftOperator
from pulsar_fleet.airflow.params.reconciliation import reconciliation_params, reconciliation_schedule
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import reconciliation


@dag(
    schedule=reconciliation_schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    params=reconciliation_params(),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "reconciliation"],
)
def reconcile_policies():
    found = FindDriftOperator(
        task_id="find_drift",
        application=str(Path(__file__).parents[1] / "spark_jobs" / "compare_snapshots.py"),
        name="compare-snapshots",
        driver_memory="1g",
    )
    reconciliation.read_request() >> found
    reconciliation.repair(found=found.output) >> reconciliation.write_report()


reconcile_policies()
