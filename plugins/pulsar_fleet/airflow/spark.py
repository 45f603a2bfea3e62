"""Submit our Spark job: refuse before Airflow guesses a master, and keep secrets out of the command line."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowNotFoundException

from pulsar_fleet.cluster.errors import Refused


class VerifyMessagesOperator(SparkSubmitOperator):
    """Run `spark_jobs/verify_messages.py` on the master of a Spark connection.

    :param source: connection id of the cluster that holds the originals (templated).
    :param target: connection id of the cluster that holds the copy (templated).
    :param spark_conn_id: the Spark connection; Airflow would take YARN if it did not exist, so it is looked up first.

    The package travels as a zip; credentials travel in the environment, never in arguments.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "source", "target", "spark_conn_id")

    def __init__(self, *, source: str, target: str, spark_conn_id: str = "spark_default", **kwargs: Any) -> None:
        super().__init__(conn_id=spark_conn_id, **kwargs)
        self.source = source
        self.target = target
        self.spark_conn_id = spark_conn_id

    def execute(self, context: Context) -> None:
        """Submit and wait; the job's log lines come to this task's log."""
        from pulsar_fleet.airflow.connection import cluster_connection
        from pulsar_fleet.verification.package import JOB_SETTINGS, build_package_zip, job_environment

        try:
            master = BaseHook.get_connection(self.spark_conn_id)
        except AirflowNotFoundException as error:
            raise Refused(
                f"Spark connection {self.spark_conn_id!r} does not exist, and Airflow would silently submit to YARN. "
                'Create it: type spark, host "local[*]" or spark://host:7077.'
            ) from error
        self.log.info("Spark master: %s", master.host)
        self._conn_id = self.spark_conn_id
        self.conf = {**JOB_SETTINGS, **(self.conf or {})}
        self.env_vars = job_environment(cluster_connection(self.source), cluster_connection(self.target))
        with tempfile.TemporaryDirectory() as folder:
            self.py_files = str(build_package_zip(Path(folder)))
            try:
                super().execute(context)
            finally:
                self._close_output()

    def _close_output(self) -> None:
        # The provider's hook leaves the pipe of the job that it started open.
        job = self._hook._submit_sp if self._hook else None
        if job is not None and job.stdout:
            job.stdout.close()
