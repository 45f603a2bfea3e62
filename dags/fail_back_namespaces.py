"""### Move migrated namespaces back from green to blue

1. **Check** — the passed: the drain has ended, no client is connected to blue, its brokers are healthy, the
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

from airflow.sdk import dag

from pulsar_fleet.airflow import MigrationSensor, Milestone
from pulsar_fleet.airflow.params.migration import FAILBACK_PARAMS
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import failback

WAIT = {
    "blue": "{{ params.green }}",
    "green": "{{ params.blue }}",
    "timeout_minutes": "{{ params.drain_timeout_minutes }}",
}


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    max_active_runs=1,
    params=FAILBACK_PARAMS,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
)
def fail_back_namespaces():
    request = failback.read_request()
    passed = failback.check_failback(request=request)
    reopened = failback.reopen_blue(request=request)
    checked = failback.check_gates(request=request)
    prepared = failback.prepare_blue(checked=checked)
    before = failback.freeze_green(checked=checked)
    replicating = failback.start_replication(checked=checked)
    replicated = MigrationSensor(
        task_id="wait_replicated", milestone=Milestone.REPLICATED, moves=checked["moves"], **WAIT
    )
    copy_verified = failback.verify_copy(checked=checked)
    cut_over = failback.cut_over(checked=checked, before=before)
    subscriptions = failback.verify_subscriptions(checked=checked)
    drained = MigrationSensor(task_id="wait_drained", milestone=Milestone.DRAINED, moves=checked["moves"], **WAIT)
    messages = failback.verify_messages(checked=checked)
    cleaned = failback.clean_up_green(checked=checked, before=before)

    passed >> reopened >> checked
    prepared >> before >> replicating >> replicated >> copy_verified >> cut_over
    cut_over >> [subscriptions, drained] >> messages >> cleaned
    cleaned >> failback.restore_green(request=request) >> failback.write_report()


fail_back_namespaces()
