"""A failed run names its cause first, not the tasks that failed because of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.airflow.run import failed_tasks, finish_run, store_failure
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.model import Phase
from pulsar_fleet.report.failure import failure_details, failure_line
from pulsar_fleet.report.migration import migration_report

STATES = {
    "read_request": "success",
    "check_gates": "failed",
    "prepare_green": "upstream_failed",
    "cut_over": "upstream_failed",
    "write_report": "running",
}
REASON = "2 blockers, 0 warnings. Nothing has been changed.\nBLOCKER migration-check-off"


def context(task: str, states: dict[str, str] | None = None, error: BaseException | None = None) -> Any:
    """What Airflow gives to a task and to its callbacks."""
    instance = SimpleNamespace(
        task_id=task, get_task_states=lambda dag_id, run_ids: {run_ids[0]: STATES if states is None else states}
    )
    return {"dag_run": SimpleNamespace(dag_id="migrate", run_id="1"), "ti": instance, "exception": error}


@pytest.fixture
def run(records: Any) -> Run:
    return Run.open("migrate/1")


def test_only_the_task_that_failed_by_itself_is_named_with_its_reason(run: Run) -> None:
    store_failure(context("check_gates", error=PreconditionFailed(REASON)))
    assert failed_tasks(context("write_report")) == {"check_gates": REASON}


def test_the_reason_of_a_mapped_task_is_found_by_its_name(run: Run) -> None:
    store_failure(context("apply_plan", error=PreconditionFailed("no")))
    assert failed_tasks(context("write_report", {"apply_plan_3": "failed"})) == {"apply_plan_3": "no"}


def test_an_unexpected_error_is_named_with_its_type(run: Run) -> None:
    store_failure(context("check_gates", error=KeyError("clusterName")))
    assert failed_tasks(context("write_report")) == {"check_gates": "KeyError: 'clusterName'"}


def test_without_a_task_that_failed_by_itself_the_others_are_named(run: Run) -> None:
    assert failed_tasks(context("write_report", {"cut_over": "upstream_failed"})) == {"cut_over": ""}


def test_a_run_without_a_failure_has_none(run: Run) -> None:
    assert failed_tasks(context("write_report", {"cut_over": "success"})) == {}


def test_the_headline_of_a_failed_migration_is_the_cause(run: Run) -> None:
    report = migration_report(run, {"check_gates": REASON}).markdown()
    assert report.splitlines()[0] == ("# Failed in check_gates: 2 blockers, 0 warnings. Nothing has been changed.")
    assert "No namespace was cut over: nothing lost." in report
    assert "BLOCKER migration-check-off" in report
    assert "upstream" not in report


def test_a_reason_that_was_not_stored_says_where_it_is(run: Run) -> None:
    report = migration_report(run, {"cut_over": ""}).markdown()
    assert report.startswith("# Failed in cut_over\n\n")
    assert "The reason is at the end of the log of cut_over." in report


def test_hundreds_of_names_do_not_make_a_long_headline(run: Run) -> None:
    for number in range(300):
        run.ledger.enter_phase(run.id, f"acme/n{number}", Phase.CUT_OVER.value)
    report = migration_report(run, {f"task_{number}": "x" * 10_000 for number in range(300)}).markdown()
    assert len(report.splitlines()[0]) < 400
    assert "Already cut over: acme/n0, acme/n1, acme/n2 and 297 more." in report


def test_a_long_reason_is_shortened_in_the_line_and_complete_below() -> None:
    failed = {"cut_over": "y" * 1000}
    assert len(failure_line(failed)) < 350
    assert "y" * 1000 in failure_details(failed)


def test_the_task_that_reports_fails_with_the_cause(run: Run) -> None:
    run.ledger.start_run(run.id, "migrate_namespaces", {})
    with pytest.raises(PreconditionFailed, match="Failed in check_gates: 2 blockers"):
        finish_run(context("write_report"), {"check_gates": REASON})
