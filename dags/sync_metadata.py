"""### Synchronise metadata between clusters over an event topic

1. **Synchronise** — the event topic is created if it is missing, and replicated between the clusters. Changes on a
   cluster are published, each field with the time and the cluster of its last change; newer changes of the other
   clusters are applied, with the hazards, the read-back and the journal of every change. What was deleted on another
   cluster is listed with the id of its batch; a run with `propagate_deletes: approve` and this id deletes it.
2. **Report** — events by cluster, events that could not be applied and why, unreachable clusters and since when.

A run that wrote on a cluster emits the asset `pulsar-policies/<cluster>`, so other DAGs can be scheduled on it.

To synchronise changes immediately, run `pulsar-fleet sync-metadata --follow` as a service; this DAG may run at the same
time. The page `docs/sync_metadata.md` says what to do with the report.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import metadata
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.metadata import SYNC_METADATA


@dag(
    schedule=SYNC_METADATA.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    # As soon as it runs it writes to clusters: also where an installation's default is another one.
    is_paused_upon_creation=True,
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP),
    params=form(SYNC_METADATA.settings()),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "reconciliation"],
    **run_alerts("sync_metadata"),
)
def sync_metadata():
    metadata.read_request() >> metadata.sync_changes() >> metadata.write_report()


sync_metadata()
