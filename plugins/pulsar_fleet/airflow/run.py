"""What all tasks share: retries by kind of error, the records of the run, the states of the other tasks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout, AirflowTaskTimeout

from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.report.failure import failure_details, failure_line, reason_of
from pulsar_fleet.settings.capacity import VARIABLE, Capacity, Kind

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.preflight.view import DagParsing

Result = TypeVar("Result")
_EARLY_SECONDS = 60.0
_BEGAN = "_fleet_began"
"""The attribute of a task with the time at which it began to execute or to resume."""


def fleet_run_id(context: Context) -> str:
    """The id of the records of a DAG run: the same for all its tasks and tries."""
    run = context["dag_run"]
    return f"{run.dag_id}/{run.run_id}"


def current_run(context: Context) -> Run:
    """The records of this DAG run."""
    from pulsar_fleet.ledger.run import Run

    return Run.open(fleet_run_id(context))


def requester(context: Context) -> str:
    """The user who triggered this DAG run, or the run that it continues; else what created it."""
    run, continued = context["dag_run"], str(context["params"].get("continues") or "")
    user = getattr(run, "triggering_user_name", None)
    if continued and not user:
        from pulsar_fleet.ledger.run import Run
        from pulsar_fleet.migration.procedure import wave_run_id

        # By its id it is the run that the one before has started.
        if fleet_run_id(context) == wave_run_id(continued, context["params"]["wave"]):
            user = Run.open(continued).requester
    return str(user or f"Airflow, as a {getattr(run.run_type, 'value', run.run_type)} run")


def dag_parsing() -> DagParsing:
    """Airflow's settings for the parsing of DAG files, as this process has them."""
    from airflow.providers.common.compat.sdk import conf

    from pulsar_fleet.migration.preflight.view import DagParsing

    return DagParsing(
        timeout=conf.getint("dag_processor", "dag_file_processor_timeout"),
        interval=conf.getint("dag_processor", "min_file_process_interval"),
        stale_after=conf.getint("dag_processor", "stale_dag_threshold"),
    )


def store_failure(context: Context) -> None:
    """Store the reason of a task's failure with the run, so that the report can name it; for `on_failure_callback`."""
    run, error = current_run(context), context.get("exception")
    # It has the sentence of an expected failure.
    reason = str(error) if isinstance(error, AirflowFailException) else reason_of(error) if error else ""
    run.artefacts.write_json(run.id, _FAILURE.format(context["ti"].task_id), reason)


def failed_tasks(context: Context) -> dict[str, str]:
    """Tasks of this run that failed by themselves → the reason, as far as it is stored; without the current task.

    A task that could not run because another one failed is named only if no task failed by itself.
    """
    dag_run, own, run = context["dag_run"], context["ti"], current_run(context)
    states = own.get_task_states(dag_id=dag_run.dag_id, run_ids=[dag_run.run_id]).get(dag_run.run_id, {})
    others = {task: state for task, state in states.items() if task != own.task_id}
    failed = [task for task, state in others.items() if state == "failed"]
    failed = failed or [task for task, state in others.items() if state == "upstream_failed"]
    return {task: _reason(run, task) for task in sorted(failed)}


def _reason(run: Run, task: str) -> str:
    # An instance of a mapped task is listed as `task_<index>`; its reason is stored by the name of the task.
    stored = run.stored(_FAILURE.format(task)) or run.stored(_FAILURE.format(re.sub(r"_\d+$", "", task)))
    return str(stored or "")


_FAILURE = "failures/{}.json"


def finish_run(context: Context, failed: Mapping[str, str]) -> None:
    """End the run in the ledger, and fail the current task if another task failed.

    Airflow takes the state of a run from its last task.
    """
    run = current_run(context)
    run.ledger.finish_run(run.id, "failed" if failed else "succeeded")
    if failed:
        raise PreconditionFailed(f"{failure_line(failed)}{failure_details(failed)}")


def record_end(context: Context) -> None:
    """Record that Airflow has ended a run as failed; for `on_failure_callback` of a DAG, in its processor.

    A run that is ended by its `dagrun_timeout` skips its report, and would stay running in the records.
    """
    from pulsar_fleet.ledger.run import Run

    # Without a task that has run the context has no `dag_run`.
    run = Run.open(f"{context['dag'].dag_id}/{context['run_id']}")
    if (recorded := run.ledger.run(run.id)) and recorded.state == "running":
        run.ledger.finish_run(run.id, "failed")


def run_until_limit(task: Any, work: Coroutine[Any, Any, Result]) -> Result:
    """Run in an event loop, and cancel the work a minute before Airflow's timeout of the task.

    Airflow raises its timeout where the process is at that moment: in a callback of the event loop, which logs it and
    goes on, or in its selector, which nothing that has been taken or opened hears of. What is cancelled gives up its
    lease and closes its connections. Airflow's own timeout stays for what does not yield to the event loop.

    :raises AirflowTaskTimeout: it was cancelled.
    """
    limit = task.execution_timeout.total_seconds() if task.execution_timeout else None
    # Airflow counts from the begin of the task, which may call this several times.
    spent = time.monotonic() - getattr(task, _BEGAN, time.monotonic())
    left = limit and max(limit - _EARLY_SECONDS, limit / 2) - spent

    async def run() -> Result:
        try:
            async with asyncio.timeout(left) as timer:
                return await work
        except TimeoutError as error:
            if not timer.expired():
                raise
            # The end of the event loop waits for its threads, and a thread for what it has started, such as Spark.
            task.on_kill()
            raise AirflowTaskTimeout(f"{task.task_id} has lasted as long as it may") from error

    return asyncio.run(run())


def retry_what_can_heal(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that Airflow calls to execute or to resume a task, so that only what can pass without an operator is
    retried: every other error of this package fails the task at once, by the same sentence, and so does a task that has
    lasted too long: another try would last as long before anybody hears of it.

    Airflow's retry policies would do it as well, and exist from 3.3 on only.
    """

    @wraps(method)
    def run(self: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        setattr(self, _BEGAN, time.monotonic())
        try:
            return method(self, context, *args, **kwargs)
        except (Unavailable, AirflowSensorTimeout):
            # Of the second Airflow itself retries none, and `soft_fail` skips the task.
            raise
        except FleetError as error:
            raise AirflowFailException(str(error)) from error
        except AirflowTaskTimeout as error:
            # Airflow calls it for a timeout only.
            self.on_kill()
            raise AirflowFailException(_timeout_text(self)) from error

    return run


def _timeout_text(task: BaseOperator) -> str:
    limit, paragraph = task.execution_timeout or timedelta(0), str(task.doc_md or "").partition("\n\n")[0]
    doing = f" while it did this: {' '.join(paragraph.split()).rstrip('.')}" if paragraph else ""
    return (
        f"{task.task_id} was stopped at its limit of {duration(limit.total_seconds())}{doing}. Nothing is lost: what "
        "it has done is stored. The end of its log says what it waited for. Do what the page of the procedure says "
        "where this task stops; where it names nothing else, clear it, and it does what is left. If that needs "
        f"longer, raise the limit first, in {VARIABLE}."
    )


DEFAULT_ARGS: dict[str, Any] = {
    "retries": 3,
    # Airflow 3.1 takes no number, and the later ones take it as 2: 10, 20, 40 seconds, each up to twice as long by the
    # jitter that Airflow adds.
    "retry_exponential_backoff": True,
    "retry_delay": timedelta(seconds=10),
    # Airflow counts the tries before a clear too: without it the delay of a task that is cleared often is hours.
    "max_retry_delay": timedelta(minutes=5),
    "execution_timeout": Capacity.read().task_limit(Kind.STEP),
    "on_failure_callback": store_failure,
}
"""The default arguments of every DAG."""
