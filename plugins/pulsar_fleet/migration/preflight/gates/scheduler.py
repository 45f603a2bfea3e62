"""Whether Airflow keeps scheduling the run while its machine is busy (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.migration.preflight.gates.catalogue import Owner, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_DAG_MAY_BECOME_STALE = warns(
    "dag-may-become-stale",
    Owner.AIRFLOW,
    "On a busy machine a single parse of the DAG file that exceeds its timeout deactivates the DAG: the run stops "
    "without a message until the file is parsed again.",
)


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
