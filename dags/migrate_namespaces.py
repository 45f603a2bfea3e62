"""### Move namespaces from blue to green while their clients keep running, one wave a run

1. **Check** — every gate is evaluated; one blocker stops the run, and nothing has been changed. The first run plans the
   waves: namespaces that share clients move together, a canary first, the riskiest last.
2. **Approve** — a person reads what the wave moves and what could go wrong. *Reject* ends the run.
3. **Prepare** — topics, schemas, policies, permissions and subscriptions are created on green; blue is held still;
   what is stored is copied by geo-replication where that is needed.
4. **Switch** — in a change window: writers are quieted for a moment, clients are redirected. *From here on there is no
   way back but a second migration.*
5. **Prove** — blue's messages are compared with green's copy, as many clients as before are on green, blue is restored.
   Then a run for the next wave is started.

Blue must stay up until the applications' configuration names green: it redirects those that start anew.
The page `docs/migrate_namespaces.md` says what to do at each stop.
"""

from __future__ import annotations

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import dag

from pulsar_fleet.airflow.operators.approval import WaveApprovalOperator
from pulsar_fleet.airflow.params.migration import PARAMS
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.sensors.migration import ChangeWindowSensor, MigrationSensor
from pulsar_fleet.airflow.tasks import migration
from pulsar_fleet.airflow.triggers.migration import Awaited

WAIT = {
    "blue": "{{ params.blue }}",
    "green": "{{ params.green }}",
    "timeout_minutes": "{{ params.drain_timeout_minutes }}",
}


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    max_active_runs=1,
    params=PARAMS,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
)
def migrate_namespaces():
    checked = migration.check_gates(request=migration.read_request())
    approved = WaveApprovalOperator(task_id="approve_wave", checked=checked)
    prepared = migration.prepare_green(checked=checked)
    held = migration.check_again(checked=checked)
    before = migration.freeze_blue(checked=checked)
    replicating = migration.start_replication(checked=checked)
    replicated = MigrationSensor(task_id="wait_replicated", awaited=Awaited.REPLICATED, moves=checked["moves"], **WAIT)
    proven = migration.verify_copy(checked=checked)
    in_window = ChangeWindowSensor(task_id="wait_for_window")
    switched = migration.cut_over(checked=checked, before=before)
    compared = migration.compare_subscriptions(checked=checked)
    drained = MigrationSensor(task_id="wait_drained", awaited=Awaited.DRAINED, moves=checked["moves"], **WAIT)
    verified = migration.verify_equal(checked=checked)
    cleaned = migration.clean_up_blue(checked=checked, before=before)
    following = migration.plan_next_run(checked=checked)

    approved >> prepared >> held >> before >> replicating >> replicated >> proven >> in_window >> switched
    switched >> [compared, drained] >> verified >> cleaned
    cleaned >> migration.restore_blue() >> migration.write_report() >> following
    following >> TriggerDagRunOperator(
        task_id="start_next_wave",
        trigger_dag_id="migrate_namespaces",
        trigger_run_id=following["run_id"],
        conf=following["conf"],
        skip_when_already_exists=True,
    )


migrate_namespaces()
