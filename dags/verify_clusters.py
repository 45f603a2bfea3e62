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

from pulsar_fleet.airflow.assets import VERIFIED, announce_verified
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.verification import VERIFICATION

# read_request → for each batch: freeze_bounds → compare_messages, compare_subscriptions → read_verdict; write_report
# Without a dagrun_timeout: how long it takes grows with the number of batches.
verify_clusters = procedure_dag(
    VERIFICATION,
    doc_md=__doc__,
    tags=["pulsar", "verification"],
    spark_jobs=Path(__file__).parents[1] / "spark_jobs",
    emits={"read_verdict": (VERIFIED, announce_verified)},
)
