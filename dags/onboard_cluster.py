"""### Onboard a cluster: copy everything from another cluster except messages

1. **Snapshot** — the tenants, namespaces, policies, topics, schemas, topic policies and subscriptions of both
   clusters are read; topics are loaded only for the properties of their subscriptions.
2. **Plan** — an incompatibility stops the run; what the target lacks becomes a plan. Nothing is deleted:
   resources that exist only on the target are listed and left alone.
3. **Approve** — a person reads the plan and its hazards; *Reject* changes nothing.
4. **Apply** — each change reads the live value, writes, reads back, and is recorded with the value before and after.
5. **Verify** — the target is read again; the run succeeds only if no changes remain to plan.

*Dry run* stops after the plan. The page `docs/onboard_cluster.md` says what to do if a task fails.
"""

from __future__ import annotations

from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.airflow.operators.snapshot_equality import VerifySnapshotOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import onboard
from pulsar_fleet.settings.onboard import SETTINGS


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    params=form(SETTINGS),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "onboarding"],
    **run_alerts("onboard_cluster"),
)
def onboard_cluster():
    request = onboard.read_request()
    source = onboard.take_snapshot.override(task_id="snapshot_source")(request=request, side="source")
    target = onboard.take_snapshot.override(task_id="snapshot_target")(request=request, side="target")
    planned = onboard.plan_changes(source=source, target=target)
    approved = PlanApprovalOperator(task_id="approve_plan", planned=planned)
    applied = onboard.apply_plan.partial(planned=planned).expand(batch=approved.output)
    verified = VerifySnapshotOperator(
        task_id="verify_equal",
        application=str(Path(__file__).parents[1] / "spark_jobs" / "compare_snapshots.py"),
        name="compare-snapshots",
        driver_memory="1g",
        source=source,
        target="{{ params.target }}",
        selection=request["selection"],
    )
    applied >> verified >> onboard.write_report()


onboard_cluster()
