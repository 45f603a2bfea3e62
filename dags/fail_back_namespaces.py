"""### Bring migrated namespaces back from green to blue

1. **Check** — the interlocks: nothing drains any more, nobody is left on blue, its brokers are well, the migration was
   proven, no other run moves them; and every gate of a migration, the other way round. Nothing has been changed.
2. **Open blue again** — its flag is cleared; its closed topics, which can never be written to again, are removed and
   made anew. *From here on an application that starts anew stays on blue: do not wait long.*
3. **Migrate** — the steps of `migrate_namespaces` from green to blue, with their proofs.
4. **Restart** — a producer that was redirected twice over the same connection cannot come back by itself: the run names
   the applications that must be restarted.

The page `docs/fail_back_namespaces.md` says what to do at each stop.
"""

from __future__ import annotations

from airflow.sdk import dag

from pulsar_fleet.airflow.params.migration import RETURN_PARAMS
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.sensors.migration import MigrationSensor
from pulsar_fleet.airflow.tasks import failback
from pulsar_fleet.airflow.triggers.migration import Awaited

WAIT = {
    "blue": "{{ params.green }}",
    "green": "{{ params.blue }}",
    "timeout_minutes": "{{ params.drain_timeout_minutes }}",
}


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    max_active_runs=1,
    params=RETURN_PARAMS,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
)
def fail_back_namespaces():
    request = failback.read_request()
    interlocked = failback.check_failback(request=request)
    opened = failback.reopen_blue(request=request)
    checked = failback.check_gates(request=request)
    prepared = failback.prepare_blue(checked=checked)
    before = failback.freeze_green(checked=checked)
    replicating = failback.start_replication(checked=checked)
    replicated = MigrationSensor(task_id="wait_replicated", awaited=Awaited.REPLICATED, moves=checked["moves"], **WAIT)
    proven = failback.verify_copy(checked=checked)
    switched = failback.cut_over(checked=checked, before=before)
    compared = failback.compare_subscriptions(checked=checked)
    drained = MigrationSensor(task_id="wait_drained", awaited=Awaited.DRAINED, moves=checked["moves"], **WAIT)
    verified = failback.verify_equal(checked=checked)
    cleaned = failback.clean_up_green(checked=checked, before=before)

    interlocked >> opened >> checked
    prepared >> before >> replicating >> replicated >> proven >> switched >> [compared, drained] >> verified >> cleaned
    cleaned >> failback.restore_green(request=request) >> failback.write_report()


fail_back_namespaces()
