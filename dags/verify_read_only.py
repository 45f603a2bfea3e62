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
from airflow.sdk import dag

from pulsar_fleet.airflow.alerts import run_alerts
from pulsar_fleet.airflow.form import form
from pulsar_fleet.airflow.operators.spark import VerifyMessagesOperator
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.tasks import read_only_proofs
from pulsar_fleet.settings.read_only import VERIFY_READ_ONLY

JOBS = Path(__file__).parents[1] / "spark_jobs"


@dag(
    schedule=None,
    params=form(VERIFY_READ_ONLY),
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "read-only", "verification"],
    **run_alerts("verify_read_only"),
)
def verify_read_only():
    frozen = read_only_proofs.freeze_bounds()
    compared = VerifyMessagesOperator(
        task_id="compare_messages",
        application=str(JOBS / "verify_messages.py"),
        application_args=["--request", frozen["request"], "--result", frozen["result"]],
        name="verify-messages",
        source="{{ params.cluster }}",
        target="{{ params.cluster }}",
        driver_memory="1g",
    )
    compared >> read_only_proofs.read_verdict(frozen=frozen) >> read_only_proofs.write_report()


verify_read_only()
