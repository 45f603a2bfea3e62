"""### Synchronise metadata between clusters over an event topic

The mode `report`, the default, compares the clusters and writes nothing. With the mode `sync`:

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

from pulsar_fleet.airflow.assets import POLICIES_CHANGED, announce_synchronised
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.metadata import METADATA
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.metadata import SYNC_METADATA

# read_request → sync_changes → write_report
sync_metadata = procedure_dag(
    METADATA,
    schedule=SYNC_METADATA.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    # In the mode `sync` it writes to clusters: also where an installation's default is another one.
    is_paused_upon_creation=True,
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP),
    settings=SYNC_METADATA.settings(),
    doc_md=__doc__,
    tags=["pulsar", "reconciliation"],
    emits={"sync_changes": (POLICIES_CHANGED, announce_synchronised)},
)
