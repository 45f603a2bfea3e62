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

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.watches import OVERRIDE_WATCH
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.migration import WATCH

# read_request → restore_dead_runs and find_unmigrated → write_report
watch_overrides = procedure_dag(
    OVERRIDE_WATCH,
    schedule=WATCH.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP),
    settings=WATCH.settings(),
    doc_md=__doc__,
    tags=["pulsar", "migration"],
)
