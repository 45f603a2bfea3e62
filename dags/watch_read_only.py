"""### Watch topics that are served read-only

A shadow topic whose namespace loses its retention of -1/-1 deletes data of its source within two minutes, and a reader
that is further behind than the source retains loses messages without an error. This DAG restores a lost retention, adds
the partitions, schemas and permissions that sources have got, reads links and the lag of every reader, and fails when
something is wrong, so that people hear of it.

The page `docs/watch_read_only.md` says what to do.
"""

from __future__ import annotations

import pendulum

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.watches import READ_ONLY_WATCH
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.read_only import WATCH_READ_ONLY

# check_read_only, which also validates and reports
watch_read_only = procedure_dag(
    READ_ONLY_WATCH,
    schedule=WATCH_READ_ONLY.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP),
    settings=WATCH_READ_ONLY.settings(),
    doc_md=__doc__,
    tags=["pulsar", "read-only"],
)
