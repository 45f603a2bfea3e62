"""What every task of ours shares: retries by who must act, the run's records, the state of the other tasks."""

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
            RetryRule(exception=FleetError, action=RetryAction.FAIL, reason="trying again cannot help"),
        ]
    ),
}
"""For every DAG of ours: only what may heal by itself is tried again."""

FAILED_STATES = frozenset({"failed", "upstream_failed"})


def fleet_run_id(context: Context) -> str:
    """The id under which a DAG run keeps its records: the same for all its tasks and tries."""
    run = context["dag_run"]
    return f"{run.dag_id}/{run.run_id}"


def current_run(context: Context) -> Run:
    """The records of this DAG run."""
    from pulsar_fleet.ledger.run import Run

    return Run.open(fleet_run_id(context))


def failed_tasks(context: Context) -> tuple[str, ...]:
    """Tasks of this run that failed or could not run, except the asking one."""
    run, own = context["dag_run"], context["ti"]
    states = own.get_task_states(dag_id=run.dag_id, run_ids=[run.run_id]).get(run.run_id, {})
    return tuple(sorted(task for task, state in states.items() if state in FAILED_STATES and task != own.task_id))


def finish_run(context: Context, failed: tuple[str, ...]) -> None:
    """Close the run in the ledger, and fail the asking task if another one failed: a run is green when its leaf is."""
    run = current_run(context)
    run.ledger.finish_run(run.id, "failed" if failed else "succeeded")
    if failed:
        raise PreconditionFailed(f"The run failed in {', '.join(failed)}; the reason is at the end of that task's log.")


log = logging.getLogger(__name__)


def log_progress(noun: str) -> Callable[[int, int], None]:
    """A callback that takes (done, all) and logs `120 of 480 changes, done in about 30 s`."""
    return progress_lines(noun, lambda line: log.info("%s", line))
