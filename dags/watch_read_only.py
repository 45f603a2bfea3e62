"""### Watch topics that are served read-only

A shadow topic whose namespace loses its retention of -1/-1 deletes data of its source within two minutes, and a reader
that is further behind than the source retains loses messages without an error. This DAG restores a lost retention, adds
the partitions, schemas and permissions that sources have got, reads links and the lag of every reader, and fails when
something is wrong, so that people hear of it.

The page `docs/watch_read_only.md` says what to do.
"""

from __future__ import annotations

import pendulum
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import read_only_watch
from pulsar_fleet.settings.capacity import Capacity, Kind
from pulsar_fleet.settings.read_only import WATCH_READ_ONLY


@dag(
    schedule=WATCH_READ_ONLY.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=Capacity.read().run_limit(Kind.STEP),
    params=form(WATCH_READ_ONLY.settings()),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "read-only"],
    **run_alerts("watch_read_only"),
)
def watch_read_only():
    read_only_watch.check_read_only()


watch_read_only()
