"""### Verify replicated namespaces on schedule

1. **Find links** — the cluster lists say what is replicated between the clusters now.
2. **Compare** — for each direction, what producers wrote to the source is compared with its copies on the target, while
   all of them publish; a namespace that was proven before is read from the end of that proof only.
3. **Check proofs** — the run fails, so that people hear of it, if something is not equal, or if the newest proof of a
   namespace is older than the setting says.

Neither cluster is changed. The page `docs/verify_replication.md` says what to do.
"""

from __future__ import annotations

from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.
import pendulum
from airflow.sdk import dag, task_group

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.spark import VerifyMessagesOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import replication_proofs
from pulsar_fleet.settings.replication_proofs import VERIFY


@dag(
    schedule=VERIFY.schedule(),
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    params=form(VERIFY.settings()),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "verification", "replication"],
    **run_alerts("verify_replication"),
)
def verify_replication():
    batches = replication_proofs.find_links()

    @task_group(prefix_group_id=False)
    def compare_link(batch):
        frozen = replication_proofs.freeze_bounds(batch=batch)
        compared = VerifyMessagesOperator(
            task_id="compare_messages",
            application=str(Path(__file__).parents[1] / "spark_jobs" / "verify_messages.py"),
            application_args=["--request", frozen["request"], "--result", frozen["result"]],
            name="verify-messages",
            source=frozen["source"],
            target=frozen["target"],
            driver_memory="1g",
        )
        compared >> replication_proofs.read_verdict(batch=batch, frozen=frozen)

    compare_link.expand(batch=batches) >> replication_proofs.check_proofs(batches=batches)


verify_replication()
