"""### Move applications with replicated subscriptions to another data centre

1. **Forecast** — for each subscription: how many messages will be redelivered on the target, and how many would be
   lost. Nothing is changed; *dry run* ends here.
2. **Approve** — owners stop their consumers, wait until nothing waits for replication, and a person approves.
3. **Prepare the target** — replicated subscriptions that it lacks are created where they lose nothing, and the forecast
   is made again. *It fails while consumers are connected to the cluster that they leave, or messages would be lost.*
4. **Lead the clients** — only with *group*, while the cluster that they leave does not answer: the connection document
   leads them. *While it answers the run refuses: `move_clients` carries their positions.*
5. **Wait for the applications** — owners start them on the target; the run waits until they have caught up.
6. **Outcome** — how many messages each subscription had redelivered, and whether that is what was forecast.

A failback is the same with the connections exchanged. The page `docs/fail_over_applications.md` says what to do at each
stop.
"""

from __future__ import annotations

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.failover import FAILOVER

# read_request → forecast → approve_failover → prepare_target → lead_clients → wait_arrived → read_outcome
# → write_report
# Without a dagrun_timeout: a person has the run's approval_hours to answer, then it waits for applications.
fail_over_applications = procedure_dag(FAILOVER, doc_md=__doc__, tags=["pulsar", "replication"])
