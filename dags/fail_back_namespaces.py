"""### Move migrated namespaces back from green to blue

1. **Check** — the drain has ended, no client is connected to blue, its brokers are healthy, the
   migration was verified, no other run moves the namespaces; and every gate of a migration from green to blue.
   Nothing has been changed.
2. **Approve** — a person reads what returns and what could go wrong. *Reject* ends the run.
3. **Reopen blue** — its migration flag is cleared; its terminated topics, which can never be written to again, are
   removed and recreated. *From here on an application that restarts stays on blue: do not wait long.*
4. **Migrate** — the steps of `migrate_namespaces` from green to blue, with their verifications.
5. **Restart** — a producer that was redirected twice over the same connection cannot reconnect by itself: the run lists
   the applications that must be restarted.

The page `docs/fail_back_namespaces.md` says what to do if a task fails.
"""

from __future__ import annotations

from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.

from pulsar_fleet.airflow.assets import MIGRATED, announce_migrated
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.failback import FAILBACK

# read_request → check_failback → approve_failback → reopen_blue → check_gates → prepare_blue → freeze_green →
# start_replication → wait_replicated → verify_copy → cut_over → [verify_subscriptions, wait_drained] →
# verify_messages → clean_up_green → restore_green → write_report
# Without a dagrun_timeout: nothing may end it between the freeze and the restoration, and it waits for clients.
fail_back_namespaces = procedure_dag(
    FAILBACK,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
    max_active_runs=1,
    spark_jobs=Path(__file__).parents[1] / "spark_jobs",
    emits={"clean_up_green": (MIGRATED, announce_migrated)},
)
