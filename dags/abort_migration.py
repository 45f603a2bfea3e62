"""### Undo a migration or a failback before its point of no return

Until the first topic is terminated, everything that a run changed can be undone: flags, replication, overrides, and
what it created on the other cluster and nobody uses. Let the run end first: mark it as failed. A run that goes on, and
one that has terminated a topic, is refused, and nothing is undone.

The page of the migration in *Fleet* has a link that fills in the form. `docs/abort_migration.md` says what is kept.
"""

from __future__ import annotations

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.abort import ABORT

# read_request → check_abort → approve_abort → abort_run → write_report
# Without a dagrun_timeout: a person has the run's approval_hours to answer.
abort_migration = procedure_dag(ABORT, doc_md=__doc__, tags=["pulsar", "migration"], max_active_runs=1)
