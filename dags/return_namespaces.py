"""### Bring migrated namespaces back from green to blue

1. **Check** — the interlocks: nothing drains any more, nobody is left on blue, its brokers are well, the migration was
   proven, no other run moves them; and every gate of a migration, the other way round. Nothing has been changed.
2. **Open blue again** — its flag is cleared; its closed topics, which can never be written to again, are removed and
   made anew. *From here on an application that starts anew stays on blue: do not wait long.*
3. **Migrate** — the steps of `migrate_namespaces` from green to blue, with their proofs.
4. **Restart** — a producer that was redirected twice over the same connection cannot come back by itself: the run names
   the applications that must be restarted.

The page `docs/return_namespaces.md` says what to do at each stop.
"""

from __future__ import annotations

from airflow.sdk import dag

from pulsar_fleet.airflow.migration_params import RETURN_PARAMS
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.runbooks import way_back
from pulsar_fleet.airflow.sensors import MigrationSensor
from pulsar_fleet.airflow.triggers import Awaited

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
def return_namespaces():
    request = way_back.read_request()
    interlocked = way_back.check_interlocks(request=request)
    opened = way_back.open_blue_again(request=request)
    checked = way_back.check_gates(request=request)
    prepared = way_back.prepare_blue(checked=checked)
    before = way_back.hold_green_still(checked=checked)
    replicating = way_back.start_replication(checked=checked)
    replicated = MigrationSensor(task_id="wait_replicated", awaited=Awaited.REPLICATED, moves=checked["moves"], **WAIT)
    proven = way_back.prove_copy(checked=checked)
    switched = way_back.switch_over(checked=checked, before=before)
    compared = way_back.compare_subscriptions(checked=checked)
    drained = MigrationSensor(task_id="wait_drained", awaited=Awaited.DRAINED, moves=checked["moves"], **WAIT)
    verified = way_back.verify_equal(checked=checked)
    cleaned = way_back.clean_up_green(checked=checked, before=before)

    interlocked >> opened >> checked
    prepared >> before >> replicating >> replicated >> proven >> switched >> [compared, drained] >> verified >> cleaned
    cleaned >> way_back.restore_green(request=request) >> way_back.write_report()


return_namespaces()
