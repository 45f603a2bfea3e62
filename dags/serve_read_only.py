"""### Serve topics read-only beside their owner, without copying data

Readers and subscriptions use *shadow topics* in a namespace of their own, from the same stored data; the owner's topics
and subscriptions are not touched.

1. **Plan** — every topic is checked: its partitions, its retention, what the read-only namespace has already. A
   blocker stops the run. *Dry run* ends here; the plan lists every call.
2. **Approve** — a person reads the plan; *Reject* changes nothing.
3. **Create topics** — the sources are loaded, then the namespace is created with a retention of -1/-1 and without the
   right to produce, then the shadow topics.
4. **Confirm brokers** — with *brokers of its own*: every shadow topic must be on one of them.
5. **Link topics**, then **confirm links** — every link must be alive, and a reader must get a message.
6. **Remove topics** — with *remove*: unlinked, cut loose from the data of the source, and only then deleted.

With *other cluster* readers get a copy there instead, by replication in one direction, and nobody may produce on it.

Without a retention of -1/-1 a shadow topic deletes data that its source still needs; no procedure of this package sends
a call that would lower it. The page `docs/serve_read_only.md` says what to do if a task fails.
"""

from __future__ import annotations

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.read_only import READ_ONLY

# read_request → plan_changes → approve_plan → create_topics → confirm_brokers → link_topics → confirm_links →
# remove_topics → write_report
# Without a dagrun_timeout: a person has the run's approval_hours to answer.
serve_read_only = procedure_dag(READ_ONLY, doc_md=__doc__, tags=["pulsar", "read-only"])
