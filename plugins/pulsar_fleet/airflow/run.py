"""What all tasks share: retries by kind of error, the records of the run, the states of the other tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed, Unavailable
from pulsar_fleet.report.progress import progress_lines

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_fleet.ledger.run import Run


DEFAULT_ARGS: dict[str, Any] = {
    "retries": 3,
    "retry_delay": timedelta(seconds=10),
    "retry_policy": ExceptionRetryPolicy(
        rules=[
            RetryRule(exception=Unavailable, action=RetryAction.RETRY, reason="the cluster did not answer"),
            RetryRule(exception=FleetError, action=RetryAction.FAIL, reason="a retry cannot help"),
        ]
    ),
}
"""The default arguments of every DAG: only errors that can pass without an operator are retried."""

FAILED_STATES = frozenset({"failed", "upstream_failed"})


def fleet_run_id(context: Context) -> str:
    """The id of the records of a DAG run: the same for all its tasks and tries."""
    run = context["dag_run"]
    return f"{run.dag_id}/{run.run_id}"


def current_run(context: Context) -> Run:
    """The records of this DAG run."""
    from pulsar_fleet.ledger.run import Run

    return Run.open(fleet_run_id(context))


def failed_tasks(context: Context) -> tuple[str, ...]:
    """Tasks of this run that failed or could not run, without the current task."""
    run, own = context["dag_run"], context["ti"]
    states = own.get_task_states(dag_id=run.dag_id, run_ids=[run.run_id]).get(run.run_id, {})
    return tuple(sorted(task for task, state in states.items() if state in FAILED_STATES and task != own.task_id))


def finish_run(context: Context, failed: tuple[str, ...]) -> None:
    """End the run in the ledger, and fail the current task if another task failed.

    Airflow takes the state of a run from its last task.
    """
    run = current_run(context)
    run.ledger.finish_run(run.id, "failed" if failed else "succeeded")
    if failed:
        raise PreconditionFailed(f"The run failed in {', '.join(failed)}; the reason is at the end of that task's log.")


log = logging.getLogger(__name__)


def log_progress(noun: str) -> Callable[[int, int], None]:
    """A callback for (done, total) that logs `120 of 480 changes, done in about 30 s`."""

    return progress_lines(noun, lambda line: log.info("%s", line))
