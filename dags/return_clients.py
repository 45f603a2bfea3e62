"""### Move the clients of a run of `move_clients` back, at once

Names one run, and nothing else: clusters, group and document are those of that run. Positions are carried back, and the
document that led the clients there before is published. Nobody is asked. Where the cluster that they leave does not
answer, they return without it.

The page `docs/move_clients.md` says what to do at each stop.
"""

from __future__ import annotations

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.client_moves import RETURN

# read_request → return_clients → wait_arrived → write_report
return_clients = procedure_dag(RETURN, doc_md=__doc__, tags=["pulsar", "replication"])
