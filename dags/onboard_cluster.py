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

from pulsar_fleet.airflow.assets import COPIED, announce_copied
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.onboarding import ONBOARDING

# read_request → snapshot_source, snapshot_target → plan_changes → approve_plan → apply_plan → verify_equal →
# write_report
# Without a dagrun_timeout: a person has the run's approval_hours to answer.
onboard_cluster = procedure_dag(
    ONBOARDING,
    doc_md=__doc__,
    tags=["pulsar", "onboarding"],
    spark_jobs=Path(__file__).parents[1] / "spark_jobs",
    emits={"verify_equal": (COPIED, announce_copied)},
)
