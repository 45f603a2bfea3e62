"""### Move applications with replicated subscriptions to another data centre

1. **Forecast** — for each subscription: how many messages will be redelivered on the target, and how many would be
   lost. Nothing is changed; *dry run* ends here.
2. **Approve** — owners stop their consumers, wait until nothing waits for replication, and a person approves.
3. **Prepare the target** — replicated subscriptions that it lacks are created where they lose nothing, and the forecast
   is made again. *It fails while consumers are connected to the cluster that they leave, or messages would be lost.*
4. **Wait for the applications** — owners start them on the target; the run waits until they have caught up.
5. **Outcome** — how many messages each subscription had redelivered, and whether that is what was forecast.

A failback is the same with the connections exchanged. The page `docs/fail_over_applications.md` says what to do at each
stop.
"""

from __future__ import annotations

from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.sensors.failover import ApplicationsArrivedSensor
from pulsar_fleet.airflow.tasks import failover
from pulsar_fleet.settings.failover import SETTINGS


@dag(
    schedule=None,
    catchup=False,
    params=form(SETTINGS),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "replication"],
    **run_alerts("fail_over_applications"),
)
def fail_over_applications():
    announced = failover.forecast()
    approved = PlanApprovalOperator(task_id="approve_failover", planned=announced)
    arrived = ApplicationsArrivedSensor(task_id="wait_arrived")
    failover.read_request() >> announced >> approved >> failover.prepare_target() >> arrived
    arrived >> failover.read_outcome() >> failover.write_report()


fail_over_applications()
