"""What all tasks share: retries by kind of error, the records of the run, the states of the other tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

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
    known = isinstance(error, FleetError)
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


def _retry_policy() -> dict[str, Any]:
    """Retry only what can pass without an operator; releases before Airflow 3.3 retry every error."""
    try:
        from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
    except ImportError:
        return {}
    rules = [
        RetryRule(exception=Unavailable, action=RetryAction.RETRY, reason="the cluster did not answer"),
        RetryRule(exception=FleetError, action=RetryAction.FAIL, reason="a retry cannot help"),
    ]
    return {"retry_policy": ExceptionRetryPolicy(rules=rules)}


DEFAULT_ARGS: dict[str, Any] = {
    "retries": 3,
    "retry_delay": timedelta(seconds=10),
    "on_failure_callback": store_failure,
    **_retry_policy(),
}
"""The default arguments of every DAG: only errors that can pass without an operator are retried."""
