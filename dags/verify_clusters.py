"""### Prove that two clusters hold the same messages and subscriptions

1. **Freeze** — the source's end is taken once; on the target, exactly what came from there is compared.
2. **Read** — a Spark job reads both sides and compares digests per bucket; buckets that differ are read again and the
   first differing messages are named.
3. **Subscriptions** — what each of them has not read is compared on both sides: what would come again, or never.
   Up to 1,000 topics are done in this task, more by a Spark job. The switch `subscriptions` leaves this out.
4. **Verdict** — equal, different or inconclusive; never equal by default. The run is green only when both are equal.

A larger run does steps 1 to 4 for 100 namespaces at a time (`namespaces_per_job`), each in a job of its own.
Nothing is changed on either cluster. The page `docs/verify_clusters.md` says how to read a verdict.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import dag, task_group

from pulsar_fleet.airflow.operators.spark import VerifyMessagesOperator, VerifySubscriptionsOperator
from pulsar_fleet.airflow.params.verification import PARAMS
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import verification

JOBS = Path(__file__).parents[1] / "spark_jobs"


@dag(
    schedule=None,
    params=PARAMS,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "verification"],
)
def verify_clusters():
    batches = verification.read_request()

    @task_group(prefix_group_id=False)
    def compare_batch(batch):
        frozen = verification.freeze_bounds(batch=batch)
        compared = VerifyMessagesOperator(
            task_id="compare_messages",
            application=str(JOBS / "verify_messages.py"),
            application_args=["--request", frozen["request"], "--result", frozen["result"]],
            name="verify-messages",
            source="{{ params.source }}",
            target="{{ params.target }}",
            driver_memory="1g",
        )
        subscriptions = VerifySubscriptionsOperator(
            task_id="compare_subscriptions",
            application=str(JOBS / "verify_subscriptions.py"),
            request=frozen["request"],
            result=frozen["subscriptions"],
            name="verify-subscriptions",
            source="{{ params.source }}",
            target="{{ params.target }}",
            driver_memory="1g",
        )
        [compared, subscriptions] >> verification.read_verdict(batch=batch, frozen=frozen)

    compare_batch.expand(batch=batches) >> verification.write_report(batches=batches)


verify_clusters()
