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

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.replication import REPLICATION

# read_request → plan_changes → approve_plan → apply_contents → start_links → confirm_links → wait_sent → end_links →
# write_report
# Without a dagrun_timeout: a person has the run's approval_hours to answer, then it waits for messages.
replicate_namespaces = procedure_dag(REPLICATION, doc_md=__doc__, tags=["pulsar", "replication"])
