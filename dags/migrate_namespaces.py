"""### Move namespaces from blue to green while their clients keep running, one wave per run

1. **Check** — every gate is evaluated; a blocker stops the run before anything is changed. The first run plans the
   waves: namespaces that share clients move together, a canary first, the riskiest last.
2. **Approve** — a person reads what the wave moves and what could go wrong. *Reject* ends the run.
3. **Prepare** — topics, schemas, policies, permissions and subscriptions are created on green; blue is frozen;
   stored messages are copied by geo-replication where the strategy requires it.
4. **Cut over** — in a change window: producers are quiesced, then clients are redirected. With
   `replicate_then_repoint` the run waits before it, until the owners of the applications have connected them to green;
   then blue refuses producers. *This is the point of no return: after it, only a second migration leads back.*
5. **Verify** — blue's messages are compared with green's copy, as many clients as before are on green, blue is
   restored. Then a run for the next wave starts.

Blue must stay up until the applications are configured with green: it redirects those that restart.
The page `docs/migration_failures.md` says what to do if a task fails.
"""

from __future__ import annotations

from pathlib import Path

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.approval import WaveApprovalOperator
from pulsar_fleet.airflow.operators.spark import MigrationProofOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.sensors.migration import ChangeWindowSensor, MigrationSensor, Milestone
from pulsar_fleet.airflow.tasks import migration
from pulsar_fleet.settings.migration import SETTINGS

PROOF = {
    "application": str(Path(__file__).parents[1] / "spark_jobs" / "verify_messages.py"),
    "source": "{{ params.blue }}",
    "target": "{{ params.green }}",
}
WAIT = {
    "blue": "{{ params.blue }}",
    "green": "{{ params.green }}",
    "timeout_minutes": "{{ params.drain_timeout_minutes }}",
}


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    max_active_runs=1,
    params=form(SETTINGS),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
    **run_alerts("migrate_namespaces"),
)
def migrate_namespaces():
    checked = migration.check_gates(request=migration.read_request())
    approved = WaveApprovalOperator(task_id="approve_wave", checked=checked)
    prepared = migration.prepare_green(checked=checked)
    rechecked = migration.recheck_gates(checked=checked)
    before = migration.freeze_blue(checked=checked)
    replicating = migration.start_replication(checked=checked)
    replicated = MigrationSensor(
        task_id="wait_replicated", milestone=Milestone.REPLICATED, moves=checked["moves"], **WAIT
    )
    copy_verified = MigrationProofOperator(proof="verify_copy", checked=checked, **PROOF)
    in_window = ChangeWindowSensor(task_id="wait_for_window")
    repointed = MigrationSensor(
        task_id="wait_repointed",
        milestone=Milestone.REPOINTED,
        moves=checked["moves"],
        **{**WAIT, "timeout_minutes": "{{ params.repoint_timeout_minutes }}"},
    )
    cut_over = migration.cut_over(checked=checked, before=before)
    subscriptions = migration.verify_subscriptions(checked=checked)
    drained = MigrationSensor(task_id="wait_drained", milestone=Milestone.DRAINED, moves=checked["moves"], **WAIT)
    messages = MigrationProofOperator(proof="verify_messages", checked=checked, **PROOF)
    cleaned = migration.clean_up_blue(checked=checked, before=before)
    following = migration.plan_next_run(checked=checked)

    approved >> prepared >> rechecked >> before >> replicating >> replicated >> copy_verified >> in_window >> repointed
    repointed >> cut_over
    cut_over >> [subscriptions, drained] >> messages >> cleaned
    cleaned >> migration.restore_blue() >> migration.write_report() >> following
    following >> TriggerDagRunOperator(
        task_id="start_next_wave",
        trigger_dag_id="migrate_namespaces",
        trigger_run_id=following["run_id"],
        conf=following["conf"],
        skip_when_already_exists=True,
    )


migrate_namespaces()
