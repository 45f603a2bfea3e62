"""Operators that submit the Spark jobs of this package, with secrets in the environment and never in arguments."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook, Context, get_current_context

from pulsar_fleet.airflow.run import retry_what_can_heal
from pulsar_fleet.cluster.errors import PreconditionFailed

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.procedures.procedure import SparkJob

_END_SECONDS = 30.0
_MEMORY = ("driver-memory", "executor-memory")
_NUMBERS = ("executor-cores", "total-executor-cores", "num-executors")


def read_resources(conn_id: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """What a job may take, by the extra of its Spark connection, as settings of `spark-submit`; the provider reads its
    other keys.

    :raises PreconditionFailed: a value cannot be used.
    """

    def refuse(name: str, example: str) -> PreconditionFailed:
        return PreconditionFailed(
            f"The extra of the Spark connection {conn_id!r} has {name!r}: {extra[name]!r}. Write it as {example}."
        )

    given = {name: extra[name] for name in (*_MEMORY, *_NUMBERS, "conf") if extra.get(name) not in (None, "")}
    for name in given.keys() & {*_MEMORY}:
        if not re.fullmatch(r"[1-9]\d*[kmgt]b?", str(given[name]).lower()):
            raise refuse(name, '"2g" or "512m"')
    for name in given.keys() & {*_NUMBERS}:
        if not re.fullmatch(r"[1-9]\d*", str(given[name])):
            raise refuse(name, "a number, such as 2")
    if not isinstance(given.get("conf", {}), dict):
        raise refuse("conf", 'an object, such as {"spark.task.maxFailures": "8"}')
    named = {name.replace("-", "_"): value for name, value in given.items()}
    return {"driver_memory": "1g", "conf": {}, **named}


class FleetJobOperator(SparkSubmitOperator):
    """Run a Spark job of this package on the master of a Spark connection; executors get the package as a zip.

    :param spark_conn_id: the Spark connection; a missing one is refused, since Airflow would submit to YARN.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "spark_conn_id")

    def __init__(self, *, spark_conn_id: str = "spark_default", **kwargs: Any) -> None:
        super().__init__(conn_id=spark_conn_id, **kwargs)
        self.spark_conn_id = spark_conn_id

    def environment(self) -> dict[str, str]:
        """Environment variables for `spark-submit`; only they may contain secrets."""
        from pulsar_fleet.verification.job import interpreter_environment

        return interpreter_environment()

    def execute(self, context: Context) -> None:
        """Submit the job and wait; its log lines are written to this task's log."""
        from pulsar_fleet.verification.job import JOB_SETTINGS, build_package_zip

        try:
            master = BaseHook.get_connection(self.spark_conn_id)
        except AirflowNotFoundException as error:
            raise PreconditionFailed(
                f"Spark connection {self.spark_conn_id!r} does not exist, and Airflow would submit to YARN. "
                'Create it: type spark, host "local[*]" or spark://host:7077.'
            ) from error
        self.log.info("Spark master: %s", master.host)
        resources = read_resources(self.spark_conn_id, master.extra_dejson)
        # That of an earlier run in this process has its arguments.
        self._hook = None
        self._conn_id = self.spark_conn_id
        # Arguments of the operator come before what the connection says.
        self.conf = {**JOB_SETTINGS, **resources.pop("conf"), **(self.conf or {})}
        for name, value in resources.items():
            if getattr(self, f"_{name}", None) is None:
                setattr(self, f"_{name}", value)
        self.env_vars = self.environment()
        with tempfile.TemporaryDirectory() as folder:
            self.py_files = str(build_package_zip(Path(folder)))
            try:
                super().execute(context)
            finally:
                self._close_output()

    def on_kill(self) -> None:
        """End `spark-submit` with all that it has started here, and the driver where that runs in the cluster.

        Of its children the provider ends none: a driver in Python outlives its Java process until it calls it again.
        """
        import psutil

        if self._hook is None:
            return
        job, started = self._hook._submit_sp, list[psutil.Process]()
        if job is not None and job.poll() is None:
            with suppress(psutil.NoSuchProcess):
                started = psutil.Process(job.pid).children(recursive=True)
        super().on_kill()
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if job is None:
            return
        try:
            job.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.log.warning("spark-submit (pid %d) has not ended in %.0f s", job.pid, _END_SECONDS)

    def _close_output(self) -> None:
        # The provider's hook does not close the pipe of the job that it started.
        job = self._hook._submit_sp if self._hook else None
        if job is not None and job.stdout:
            job.stdout.close()


class SparkStepOperator(FleetJobOperator):
    """A step of a procedure that may submit a Spark job for documents which it has stored.

    :param work: does the step for a batch; its second argument submits the job for the URIs of a request and a result,
        and waits for it.
    :param batch: None where the procedure has none (templated).
    :param clusters: the two clusters that the job reads, by settings or keys of the batch; without them it reads none.
    """

    template_fields: Sequence[str] = (*FleetJobOperator.template_fields, "batch")

    def __init__(
        self,
        *,
        work: Callable[[JsonObject | None, SparkJob], str],
        batch: Any = None,
        clusters: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._work = work
        self.batch = batch
        self.clusters = clusters

    def environment(self) -> dict[str, str]:
        """The credentials of both clusters, where the job reads them."""
        from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
        from pulsar_fleet.verification.job import job_environment

        params, batch = get_current_context()["params"], self.batch or {}
        named = [cluster_connection(batch.get(setting) or params[setting]) for setting in self.clusters]
        return job_environment(*named) if named else super().environment()

    @retry_what_can_heal
    def execute(self, context: Context) -> Any:
        """Do the step."""

        def submit(request: str, result: str) -> None:
            self.application_args = ["--request", request, "--result", result]
            FleetJobOperator.execute(self, context)

        return self._work(self.batch, submit)
