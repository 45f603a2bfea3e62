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

from pulsar_fleet.airflow import PlanApprovalOperator, VerifySnapshotOperator
from pulsar_fleet.airflow.params.common import (
    approval_params,
    connection_param,
    selection_param,
    setting,
    waivers_param,
)
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import onboard

PARAMS = {
    "source": connection_param("pulsar_blue", "Source", "Connection of the cluster to copy. It is only read."),
    "target": connection_param("pulsar_green", "Target", "Connection of the cluster that receives the copy."),
    "selection": selection_param(),
    "subscriptions": setting(
        True,
        type="boolean",
        title="Create subscriptions",
        description="Create the source's subscriptions on the target, at the earliest message.",
    ),
    "expected_lag_hours": setting(
        0,
        type="integer",
        minimum=0,
        maximum=8760,
        title="Expected lag, hours",
        description="How long messages may wait on the source before they are copied later: retention, time to live "
        "and quotas are checked against it. 0: no messages will be copied.",
    ),
    "allow_changes": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Allowed changes",
        description="Ids of the irreversible or destructive changes of the plan that are allowed, from a dry run.",
    ),
    "waivers": waivers_param(),
    **approval_params("the plan"),
    "compare_in_spark": setting(
        "auto",
        type="string",
        enum=["auto", "always", "never"],
        title="Compare in Spark",
        description="auto uses Spark from 2,000,000 rows on: fewer rows are compared in the task before Spark has "
        "started.",
    ),
    "dry_run": setting(False, type="boolean", title="Dry run", description="Show findings and plan; change nothing."),
}


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    params=PARAMS,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "onboarding"],
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
