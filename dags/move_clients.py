"""### Move live clients to another cluster, without the migration flag

For applications whose clients follow a connection document (`docs/clients.md`). Their namespaces replicate both ways.
No topic is terminated: the clients can be moved back, by `return_clients`.

1. **Check** — for each subscription where it would continue on the other cluster; which clients also use other
   namespaces; whether a message would be lost. Nothing is changed; *dry run* ends here.
2. **Approve** — a person sees it.
3. **Carry the positions** — every subscription stands on the other cluster where it stands here, with its individual
   acknowledgments; missing ones are created. Then the run waits until nearly every message is replicated.
4. **Move the clients** — the positions are carried once more, and the document is published. Clients follow it within
   their interval, with their producers and consumers.
5. **Wait for them** — until nobody is connected to the cluster that they leave; who stays is named.

The page `docs/move_clients.md` says what to do at each stop.
"""

from __future__ import annotations

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.client_moves import MOVE

# read_request → check_move → approve_move → carry_positions → wait_replicated → move_clients → wait_arrived
# → write_report
# Without a dagrun_timeout: a person has the run's approval_hours to answer, then it waits for clients.
move_clients = procedure_dag(MOVE, doc_md=__doc__, tags=["pulsar", "replication"])
