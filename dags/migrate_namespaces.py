"""### Move namespaces from blue to green while their clients keep running, one wave per run

1. **Check** — every gate is evaluated; a blocker stops the run before anything is changed. The first run plans the
   waves: namespaces that share clients move together, a canary first, the riskiest last.
2. **Approve** — a person reads what the wave moves and what could go wrong. *Reject* ends the run.
3. **Prepare** — topics, schemas, policies, permissions and subscriptions are created on green; blue is frozen;
   stored messages are copied by geo-replication where the strategy requires it.
4. **Cut over** — in a change window: producers are quiesced, then clients are redirected. With
   `replicate_then_repoint` the run waits before it, until the owners of the applications have connected them to green;
   then blue refuses producers. *This is the point of no return: after it, only a second migration leads back.*
   With `replicate_then_move_clients` it is none: a document leads the clients to green, and `return_clients` back.
5. **Verify** — blue's messages are compared with green's copy, as many clients as before are on green, blue is
   restored. Then a run for the next wave starts.

Blue must stay up until the applications are configured with green: it redirects those that restart.
The page `docs/migration_failures.md` says what to do if a task fails.
"""

from __future__ import annotations

from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.

from pulsar_fleet.airflow.assets import MIGRATED, announce_migrated
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.migration import MIGRATION

# read_request → check_gates → approve_wave → prepare_green → recheck_gates → freeze_blue → start_replication →
# wait_replicated → verify_copy → wait_for_window → wait_repointed → cut_over → [verify_subscriptions, wait_drained] →
# verify_messages → clean_up_blue → restore_blue → write_report → plan_next_run → start_next_wave
# Without a dagrun_timeout: nothing may end it between the freeze and the restoration, and it waits for clients.
migrate_namespaces = procedure_dag(
    MIGRATION,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
    max_active_runs=1,
    spark_jobs=Path(__file__).parents[1] / "spark_jobs",
    emits={"clean_up_blue": (MIGRATED, announce_migrated)},
)
