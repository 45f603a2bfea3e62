"""### Find and restore what a dead run left on a cluster

A migration overrides settings of the old cluster while it works, and holds a lease of its namespaces. A run that was
marked as failed, or whose scheduler died, cannot restore them. When its lease has expired, this DAG restores throttled
producers, policies of namespaces and settings of the brokers, by the records that the run left on the cluster itself.

The run fails when it found something, so that people hear of it: look for the run that it names, and continue it or
give it up. Replication that the dead run began goes on. It also fails when a retired cluster, whose namespaces have all
been migrated, has a namespace that is not. The page `docs/watch_overrides.md` says what to do.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import overrides
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.migration import WATCH


@dag(
    schedule=WATCH.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP),
    params=form(WATCH.settings()),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
    **run_alerts("watch_overrides"),
)
def watch_overrides():
    overrides.restore_dead_runs()
    overrides.find_unmigrated()


watch_overrides()
