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

from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import read_only
from pulsar_fleet.settings.read_only import SERVE_READ_ONLY


@dag(
    schedule=None,
    catchup=False,
    params=form(SERVE_READ_ONLY),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "read-only"],
    **run_alerts("serve_read_only"),
)
def serve_read_only():
    planned = read_only.plan_changes()
    approved = PlanApprovalOperator(task_id="approve_plan", planned=planned)
    created = read_only.create_topics(planned=planned)
    owned = read_only.confirm_brokers(planned=planned)
    linked = read_only.link_topics(planned=planned)
    confirmed = read_only.confirm_links(planned=planned)
    removed = read_only.remove_topics(planned=planned)
    read_only.read_request() >> planned >> approved >> created >> owned >> linked
    linked >> confirmed >> removed
    removed >> read_only.write_report()


serve_read_only()
