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
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import replication_watch
from pulsar_fleet.settings.replication import WATCH_REPLICATION


@dag(
    schedule=WATCH_REPLICATION.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    params=form(WATCH_REPLICATION.settings()),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "replication"],
    **run_alerts("watch_replication"),
)
def watch_replication():
    examination = replication_watch.examine_replicators()
    replication_watch.read_request() >> examination
    replication_watch.send_remedies(examination=examination) >> replication_watch.write_report()


watch_replication()
