"""### Verify that topics that are served read-only hold the same messages as their sources

1. **Freeze** — the end of each source topic is read once; its shadow topic must reach it within 30 seconds.
2. **Read** — a Spark job reads both topics and compares digests; different parts are read again, and the first
   different messages are listed.
3. **Verdict** — equal, different or inconclusive; never equal by default. The run succeeds only if all are equal.

Nothing is changed. The page `docs/verify_read_only.md` says how to read a verdict.
"""

from __future__ import annotations

from pathlib import Path

import airflow.providers.apache.spark.operators.spark_submit  # noqa: F401  Airflow imports it once, not in every parse.

from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.procedures.proofs import READ_ONLY_PROOFS
from pulsar_fleet.settings.capacity import Capacity, Kind

# read_request → freeze_bounds → compare_messages → read_verdict → write_report
verify_read_only = procedure_dag(
    READ_ONLY_PROOFS,
    doc_md=__doc__,
    tags=["pulsar", "read-only", "verification"],
    dagrun_timeout=Capacity.read().run_limit(Kind.SPARK),
    spark_jobs=Path(__file__).parents[1] / "spark_jobs",
)
