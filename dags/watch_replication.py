"""### Find replicators that do not replicate, and why

1. **Examine** — lists of clusters, tenants, cluster data, topics and replicators are read on every cluster, replicators
   that are not idle twice. Each gets a state: healthy, behind, stalled, disconnected, missing or unknown; and a cause
   with its evidence and remedy. The topics of namespaces that replicate are loaded; no message is read.
2. **Remedies** — only those that the configuration names, and only calls that can lose nothing.
3. **Report** — the run fails if a replicator does not work, so that people hear of it.

When the state of a replicator changes, the asset `pulsar-replication/<cluster>` gets an event. The page
`docs/watch_replication.md` has every state and cause, and what to do.
"""

from __future__ import annotations

import pendulum

from pulsar_fleet.airflow.assets import REPLICATION_CHANGED, announce_replication_changed
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.replication_watch import REPLICATION_WATCH
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.replication import WATCH_REPLICATION

# read_request → examine_replicators → send_remedies → write_report
watch_replication = procedure_dag(
    REPLICATION_WATCH,
    schedule=WATCH_REPLICATION.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP),
    settings=WATCH_REPLICATION.settings(),
    doc_md=__doc__,
    tags=["pulsar", "replication"],
    emits={"examine_replicators": (REPLICATION_CHANGED, announce_replication_changed)},
)
