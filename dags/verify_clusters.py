"""### Verify that two clusters hold the same messages and subscriptions

1. **Freeze** — the end of each source topic is read once; on the target, exactly the messages that came from the source
   up to this end are compared.

2. **Read** — a Spark job reads both clusters and compares digests per bucket; different buckets are read again and the
   first different messages are listed.
3. **Subscriptions** — the backlog of each subscription is compared on both clusters: which messages would be
   redelivered or skipped. Up to 1,000 topics are compared in the task, more by a Spark job. The setting
   `subscriptions` turns this off.
4. **Verdict** — equal, different or inconclusive; never equal by default. The run succeeds only if messages and
   subscriptions are equal.

A larger run does steps 1 to 4 for 100 namespaces at a time (`namespaces_per_job`), each batch in its own job.
Neither cluster is changed. The page `docs/verify_clusters.md` says how to read a verdict.
"""

from __future__ import annotations

from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.
from airflow.sdk import dag, task_group

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.spark import VerifyMessagesOperator, VerifySubscriptionsOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import verification
from pulsar_fleet.settings.verification import SETTINGS

JOBS = Path(__file__).parents[1] / "spark_jobs"


@dag(
    schedule=None,
    params=form(SETTINGS),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "verification"],
    **run_alerts("verify_clusters"),
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
