"""What Airflow does with a task that fails or lasts too long; no cluster."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from airflow.sdk import DAG
from tests.support.dag_runs import run_again, run_dag, states

from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.procedure import procedure_dag
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.cluster.errors import FleetError, NotAllowed, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures.procedure import Application, Batches, Ending, Procedure, Session, Step
from pulsar_fleet.report.document import Outcome, Report

pytestmark = pytest.mark.usefixtures("dag_bag", "records")

ERRORS: dict[type[Exception], int] = {Unavailable: 2, KeyError: 2, PreconditionFailed: 1, NotAllowed: 1}
"""Error → how often a task with one retry is tried."""
SOON = {**DEFAULT_ARGS, "retries": 1, "retry_delay": timedelta(0)}


def test_only_what_can_heal_is_retried_and_the_reason_is_stored() -> None:
    with DAG("retried", schedule=None, default_args=SOON) as dag:
        for kind in ERRORS:

            @task(task_id=kind.__name__)
            def fail(kind: type[Exception] = kind) -> None:
                raise kind("the sentence")

            fail()
    run = run_dag(dag)
    assert {instance.task_id: instance.try_number for instance in run.get_task_instances()} == {
        kind.__name__: tries for kind, tries in ERRORS.items()
    }
    stored = Run.open(f"retried/{run.run_id}")
    assert {kind: stored.stored(f"failures/{kind.__name__}.json") for kind in ERRORS} == {
        kind: "the sentence" if issubclass(kind, FleetError) else "KeyError: 'the sentence'" for kind in ERRORS
    }


CLOSED: list[str] = []
"""What steps have closed when they were stopped."""
LATE = timedelta(seconds=3)


async def hang(session: Session) -> str:
    """Copy what is left.

    The second time nothing is.
    """
    if session.run.stored("begun.json"):
        return "nothing is left"
    session.run.artefacts.write_json(session.run.id, "begun.json", True)
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0)
        CLOSED.append("lease")
    return "copied"


async def submit_beside(session: Session) -> str:
    """Compare by a job, while the event loop goes on."""
    assert session.spark is not None
    await asyncio.to_thread(session.spark, "request", "result")
    return "compared"


async def submit_here(session: Session) -> str:
    """Compare by a job, which holds up the event loop."""
    assert session.spark is not None
    session.spark("request", "result")
    return "compared"


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    report = Report(
        outcome=Outcome.FAILED if failed else Outcome.SUCCEEDED, headline="Compared.", body=("much\n" * 1000,)
    )
    return Ending(report=report, text="", document={})


def install_spark(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a `spark-submit` on the path that only runs this script."""
    program = folder / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def limited(name: str, step: Step) -> DAG:
    """A DAG with this step, which may last three seconds."""
    procedure = Procedure(name=name, summary="Hang.", clusters={}, own_settings={}, work=(step,), end=end)
    dag = procedure_dag(procedure, spark_jobs=Path(__file__).parent)
    dag.get_task(step.name).execution_timeout = LATE
    return dag


def test_a_step_is_stopped_at_its_limit_and_goes_on_when_cleared() -> None:
    dag = limited("hang", Step("copy", hang))
    CLOSED.clear()
    began = time.monotonic()
    run = run_dag(dag)
    assert time.monotonic() - began < 30
    assert states(run) == {"check": "success", "copy": "failed", "write_report": "failed"}
    assert (run.get_task_instance("copy").try_number, CLOSED) == (1, ["lease"])
    assert Run.open(f"hang/{run.run_id}").stored("failures/copy.json") == (
        "copy was stopped at its limit of 3 s while it did this: Copy what is left. Nothing is lost: what it has done "
        "is stored. The end of its log says what it waited for. Do what the page of the procedure says where this task "
        "stops; where it names nothing else, clear it, and it does what is left. If that needs longer, raise the limit "
        "first, in PULSAR_FLEET_CAPACITY."
    )
    again = run_again(dag, run)
    assert set(states(again).values()) == {"success"}
    # The report is stored with the run, and no row of Airflow's database has it.
    assert again.get_task_instance("write_report").xcom_pull(task_ids="write_report") == "Compared."


def test_a_job_takes_what_its_connection_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "given"
    install_spark(tmp_path, monkeypatch, f'echo "$@" > {given}')
    extra = {"driver-memory": "2g", "executor-memory": "3g", "executor-cores": 2, "conf": {"spark.log.level": "INFO"}}
    master = {"conn_type": "spark", "host": "spark://master:7077", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(master))
    run = run_dag(limited("resources", Step("compare", submit_beside, spark=Application("job.py"))))
    assert set(states(run).values()) == {"success"}
    for words in (
        "--driver-memory 2g",
        "--executor-memory 3g",
        "--executor-cores 2",
        "--conf spark.log.level=INFO",
        "--conf spark.ui.enabled=false",
    ):
        assert words in given.read_text()


@pytest.mark.parametrize("submit", [submit_beside, submit_here])
def test_a_spark_job_that_hangs_is_ended_with_what_it_started(
    submit: Callable[[Session], Awaitable[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids, again = tmp_path / "pids", tmp_path / "again"
    script = f"[ -e {again} ] && exit 0\ntouch {again}\nsleep 600 &\necho $$ $! > {pids}\nwait"
    install_spark(tmp_path, monkeypatch, script)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    dag = limited(submit.__name__, Step("compare", submit, spark=Application("job.py")))
    began = time.monotonic()
    run = run_dag(dag)
    assert time.monotonic() - began < 60
    assert states(run)["compare"] == "failed"
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    assert [pid for pid in started if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"] == []
    assert "compare was stopped at its limit" in str(
        Run.open(f"{dag.dag_id}/{run.run_id}").stored("failures/compare.json")
    )
    assert set(states(run_again(dag, run)).values()) == {"success"}


@pytest.mark.parametrize(("limit", "state"), [(2, "failed"), (3, "success")])
def test_more_parts_than_airflow_maps_are_refused(limit: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def three(_: Session) -> list[JsonObject]:
        return [{"folder": str(number)} for number in range(3)]

    async def compare(session: Session) -> str:
        return str(session.batch["folder"])

    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", str(limit))
    work = Batches("parts", three, (Step("compare", compare),))
    procedure = Procedure(name="mapped", summary="", clusters={}, own_settings={}, work=work, end=end)
    run = run_dag(procedure_dag(procedure))
    assert states(run)["check"] == state
    if state == "failed":
        reason = str(Run.open(f"mapped/{run.run_id}").stored("failures/check.json"))
        assert reason.startswith("This run has 3 parts, and Airflow maps tasks over at most 2: nothing was done.")
