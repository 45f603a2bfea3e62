"""### Move migrated namespaces back from green to blue

1. **Check** — the drain has ended, no client is connected to blue, its brokers are healthy, the
   migration was verified, no other run moves the namespaces; and every gate of a migration from green to blue.
   Nothing has been changed.
2. **Reopen blue** — its migration flag is cleared; its terminated topics, which can never be written to again, are
   removed and recreated. *From here on an application that restarts stays on blue: do not wait long.*
3. **Migrate** — the steps of `migrate_namespaces` from green to blue, with their verifications.
4. **Restart** — a producer that was redirected twice over the same connection cannot reconnect by itself: the run lists
   the applications that must be restarted.

The page `docs/fail_back_namespaces.md` says what to do if a task fails.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.spark import MigrationProofOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.sensors.migration import MigrationSensor, Milestone
from pulsar_fleet.airflow.tasks import failback, migration
from pulsar_fleet.settings.migration import FAILBACK_SETTINGS

PROOF = {
    "application": str(Path(__file__).parents[1] / "spark_jobs" / "verify_messages.py"),
    "source": "{{ params.green }}",
    "target": "{{ params.blue }}",
}
WAIT = {
    "blue": "{{ params.green }}",
    "green": "{{ params.blue }}",
    "timeout_minutes": "{{ params.drain_timeout_minutes }}",
}


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    max_active_runs=1,
    params=form(FAILBACK_SETTINGS),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
    **run_alerts("fail_back_namespaces"),
)
def fail_back_namespaces():
    request = failback.read_request()
    passed = failback.check_failback()
    reopened = failback.reopen_blue()
    checked = failback.check_gates()
    prepared = migration.prepare_green.override(task_id="prepare_blue")(checked=checked)
    before = migration.freeze_blue.override(task_id="freeze_green")(checked=checked)
    replicating = migration.start_replication(checked=checked)
    replicated = MigrationSensor(
        task_id="wait_replicated", milestone=Milestone.REPLICATED, moves=checked["moves"], **WAIT
    )
    copy_verified = MigrationProofOperator(proof="verify_copy", checked=checked, **PROOF)
    cut_over = migration.cut_over(checked=checked, before=before)
    subscriptions = migration.verify_subscriptions(checked=checked)
    drained = MigrationSensor(task_id="wait_drained", milestone=Milestone.DRAINED, moves=checked["moves"], **WAIT)
    messages = MigrationProofOperator(proof="verify_messages", checked=checked, **PROOF)
    cleaned = migration.clean_up_blue.override(task_id="clean_up_green")(checked=checked, before=before)
    restored = migration.restore_blue.override(task_id="restore_green")()

    request >> passed >> reopened >> checked
    prepared >> before >> replicating >> replicated >> copy_verified >> cut_over
    cut_over >> [subscriptions, drained] >> messages >> cleaned
    cleaned >> restored >> migration.write_report()


fail_back_namespaces()
