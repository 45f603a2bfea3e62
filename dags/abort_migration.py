"""### Undo a migration or a failback before its point of no return

Until the first topic is terminated, everything that a run changed can be undone: flags, replication, overrides, and
what it created on the other cluster and nobody uses. Let the run end first: mark it as failed. A run that goes on, and
one that has terminated a topic, is refused, and nothing is undone.

The page of the migration in *Fleet* has a link that fills in the form. `docs/abort_migration.md` says what is kept.
"""

from __future__ import annotations

from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import overrides
from pulsar_fleet.settings.migration import ABORT_SETTINGS


@dag(
    schedule=None,
    max_active_runs=1,
    params=form(ABORT_SETTINGS),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
    **run_alerts("abort_migration"),
)
def abort_migration():
    overrides.abort_run()


abort_migration()
