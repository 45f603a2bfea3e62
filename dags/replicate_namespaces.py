"""### Replicate namespaces between clusters, add a cluster, or take one out

1. **Plan** — all clusters are read and every link is checked in both directions: partitions, schemas, automatic
   creation of topics, cluster data. A blocker stops the run. *Dry run* ends here; the plan lists every call.
2. **Approve** — a person reads the plan; *Reject* changes nothing.
3. **Apply contents** — cluster data, tenants, namespaces, topics and schemas are created where they are missing;
   nothing is replicated yet.
4. **Start links** — the cluster lists are stored, each with the name of the cluster that stores it.
5. **Confirm links** — every topic is loaded, and every link must be connected *and* send.
6. **Wait, then end links** — a cluster that leaves has sent and received everything before its links end. What it
   stored stays on it.

The page `docs/replicate_namespaces.md` says what to do if a task fails, and how to go back.
"""

from __future__ import annotations

from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.sensors.replication import BacklogSentSensor
from pulsar_fleet.airflow.tasks import replication
from pulsar_fleet.settings.replication import SETTINGS


@dag(
    schedule=None,
    catchup=False,
    params=form(SETTINGS),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "replication"],
    **run_alerts("replicate_namespaces"),
)
def replicate_namespaces():
    planned = replication.plan_changes()
    approved = PlanApprovalOperator(task_id="approve_plan", planned=planned)
    contents = replication.apply_contents(planned=planned)
    started = replication.start_links(planned=planned)
    confirmed = replication.confirm_links(planned=planned)
    sent = BacklogSentSensor(task_id="wait_sent", planned=planned)
    ended = replication.end_links(planned=planned)
    replication.read_request() >> planned >> approved >> contents >> started >> confirmed
    confirmed >> sent >> ended >> replication.write_report()


replicate_namespaces()
