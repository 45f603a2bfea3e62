"""What all tasks share: retries by kind of error, the records of the run, the states of the other tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout

from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed, Unavailable
from pulsar_fleet.report.failure import failure_details, failure_line

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_fleet.ledger.run import Run


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


def store_failure(context: Context) -> None:
    """Store the reason of a task's failure with the run, so that the report can name it; for `on_failure_callback`."""
    run, error = current_run(context), context.get("exception")
    known = isinstance(error, FleetError | AirflowFailException)
    reason = str(error) if known or error is None else f"{type(error).__name__}: {error}"
    run.artefacts.write_json(run.id, _FAILURE.format(context["ti"].task_id), reason if error else "")


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


@contextmanager
def recorded_in_ledger(context: Context, procedure: str) -> Iterator[None]:
    """Record the run of a DAG of one task: that it began, and whether the block succeeded."""
    run = current_run(context)
    run.ledger.start_run(run.id, procedure, dict(context["params"]), requester(context))
    try:
        yield
    except BaseException:
        run.ledger.finish_run(run.id, "failed")
        raise
    run.ledger.finish_run(run.id, "succeeded")


def retry_what_can_heal(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that Airflow calls to execute or to resume a task, so that only what can pass without an operator is
    retried: every other error of this package fails the task at once, by the same sentence.

    Airflow's retry policies would do it as well, and exist from 3.3 on only.
    """

    @wraps(method)
    def run(self: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, context, *args, **kwargs)
        except (Unavailable, AirflowSensorTimeout):
            # Of the second Airflow itself retries none, and `soft_fail` skips the task.
            raise
        except FleetError as error:
            raise AirflowFailException(str(error)) from error

    return run


DEFAULT_ARGS: dict[str, Any] = {
    "retries": 3,
    # Airflow 3.1 takes no number, and the later ones take it as 2: 10, 20, 40 seconds, each up to twice as long by the
    # jitter that Airflow adds.
    "retry_exponential_backoff": True,
    "retry_delay": timedelta(seconds=10),
    # Airflow counts the tries before a clear too: without it the delay of a task that is cleared often is hours.
    "max_retry_delay": timedelta(minutes=5),
    "on_failure_callback": store_failure,
}
"""The default arguments of every DAG."""
