"""Whether Airflow keeps scheduling the run, and restores what it leaves if it dies (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.text import duration, listed
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_DAG_MAY_BECOME_STALE = warns(
    "dag-may-become-stale",
    Owner.AIRFLOW,
    "On a busy machine a single parse of the DAG file that exceeds its timeout deactivates the DAG: the run stops "
    "without a message until the file is parsed again.",
)
_WATCH_NOT_RUNNING = warns(
    "watch-not-running",
    Owner.AIRFLOW,
    "If this run dies, as when a person marks it as failed or its scheduler stops for long, nothing restores what it "
    "has overridden on the old cluster: producers may stay throttled until a person sees it.",
)
_WATCH_MINUTES = 90
"""Its schedule is every ten minutes; an hourly one, and a run that waits for a worker, are recent enough."""


def airflow_keeps_the_dag(view: View) -> Iterator[Finding]:
    """Airflow deactivates a DAG whose last complete parse is much older than the last attempt to parse its file.

    Source: `deactivate_stale_dags` of `airflow.dag_processing.manager` 3.3.2; a killed attempt counts as an attempt.
    After a parse the next one starts `interval` later, and is killed after `timeout`: a threshold above the sum, twice,
    survives two such attempts in a row.
    """
    parsing = view.expected.dag_parsing
    if parsing is None or parsing.stale_after > parsing.needed:
        return
    yield _DAG_MAY_BECOME_STALE.finding(
        "Airflow, [dag_processor]",
        f"stale_dag_threshold = {parsing.stale_after} s, min_file_process_interval = {parsing.interval} s, "
        f"dag_file_processor_timeout = {parsing.timeout} s",
        f"set AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD to more than {parsing.needed} for the DAG processor and the "
        "workers, and restart the DAG processor. A DAG whose file is deleted disappears as quickly as before.",
    )


def overrides_are_watched(view: View) -> Iterator[Finding]:
    """Only `watch_overrides` restores what a run has left whose tasks are skipped or never start again."""
    watch, (blue, _) = view.watch, view.connections
    if watch is None:
        return
    runs = watch.minutes is not None and watch.minutes <= _WATCH_MINUTES
    if runs and {blue, *view.third_connections} <= {*watch.clusters}:
        return
    if watch.minutes is None:
        evidence = "it has never run"
    elif runs:
        evidence = f"its last run watched {listed(watch.clusters)}"
    else:
        evidence = f"its last run began {duration(watch.minutes * 60)} ago"
    named = ", ".join(
        f'"{name}"' for name in (*view.connections, *view.third_connections) if name not in watch.clusters
    )
    add = f"add {named} to `clusters` in PULSAR_FLEET_WATCH of the DAG processor and the workers, restart these, and "
    yield _WATCH_NOT_RUNNING.finding(
        "Airflow, DAG watch_overrides",
        evidence,
        f"{add if named else ''}run: airflow dags unpause watch_overrides. "
        "It has to run every hour at least, with `restore`. docs/watch_overrides.md shows the variable.",
    )
