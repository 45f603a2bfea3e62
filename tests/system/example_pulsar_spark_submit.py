"""### Read a topic in a Spark job of your own

The job gets addresses as arguments and credentials by its environment, both from the connection of the hook.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import dag

from pulsar_fleet.airflow import PulsarHook

TOPIC = "persistent://examples/airflow/invoices"


# [START spark_submit]
class CountMessagesOperator(SparkSubmitOperator):
    """Arguments and templated fields are shown by Spark and by Airflow: credentials are set in `execute`."""

    def execute(self, context: Any) -> None:
        from pulsar_fleet.spark import build_package_zip

        hook = PulsarHook("pulsar_default")
        self.application_args = [hook.cluster.admin_url, str(hook.cluster.service_url), TOPIC]
        self.env_vars = hook.job_environment()
        with tempfile.TemporaryDirectory() as folder:
            self.py_files = str(build_package_zip(Path(folder)))
            super().execute(context)


@dag(schedule=None, tags=["pulsar", "example"], doc_md=__doc__)
def example_pulsar_spark_submit():
    CountMessagesOperator(
        task_id="count",
        application=str(Path(__file__).parent / "spark_jobs" / "count_messages.py"),
        conn_id="spark_default",
    )


example_pulsar_spark_submit()
# [END spark_submit]
