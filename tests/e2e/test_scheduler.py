"""Through the real scheduler and API: what `dag.test()` cannot show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.support.dag_runs import BLUE_TO_GREEN

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.workload import EstateSpec, Traffic, build_estate

pytestmark = [pytest.mark.fleet, pytest.mark.onboarding]

FINISHED = ("success", "failed")
RUN_SECONDS = 280


def finish(airflow: AirflowStack, dag_id: str, **conf: Any) -> tuple[str, str]:
    """Trigger a run and wait for its end; returns its id and state."""
    run_id = airflow.trigger(dag_id, conf)
    return run_id, wait_for(lambda: ended(airflow, dag_id, run_id))


def ended(airflow: AirflowStack, dag_id: str, run_id: str) -> str | None:
    """The run's state, None while it runs."""
    state = airflow.run_state(dag_id, run_id)
    return state if state in FINISHED else None


def wait_for(find: Callable[[], Any]) -> Any:
    """What is there at last."""
    deadline = time.monotonic() + RUN_SECONDS
    while (value := find()) is None and time.monotonic() < deadline:
        time.sleep(1)
    assert value is not None
    return value


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_namespace_with_live_clients_moves_and_nothing_is_lost(
    airflow: AirflowStack,
    blue: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    live, quiet = new_namespace(), new_namespace()
    asyncio.run(build_estate(blue, EstateSpec(live=str(quiet), tenants=1, namespaces_per_tenant=1, history=1)))
    asyncio.run(build_estate(blue, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=1, history=100)))
    with Traffic.start(blue, namespace=live, folder=tmp_path / "traffic") as traffic:
        time.sleep(2)
        run_id = airflow.trigger(
            "migrate_namespaces", BLUE_TO_GREEN | {"namespaces": [str(live), str(quiet)], "wave_namespaces": 1}
        )
        question = answer_wave(airflow, run_id, "Approve")
        state = wait_for(lambda: ended(airflow, "migrate_namespaces", run_id))
        time.sleep(2)
        tally = traffic.stop()
    failed = [task["task_id"] for task in airflow.tasks("migrate_namespaces", run_id) if task["state"] == "failed"]
    assert state == "success", "\n".join(airflow.log("migrate_namespaces", run_id, task) for task in failed)
    assert (tally.finished, tally.lost, tally.order_breaks) == (True, 0, 0)
    report = airflow.report("migrate_namespaces", run_id)
    assert ("arrived" in report, "Wave 1: Approve by " in report) == (True, True)
    assert f"`{live}`" in question["body"].partition("##")[0]
    # The next wave is a run of its own, with an approval of its own.
    question = answer_wave(airflow, f"{run_id}__wave-2", "Reject")
    assert (question["subject"], f"`{quiet}`" in question["body"]) == (
        "Wave 2 of 2: 1 namespace from blue to green",
        True,
    )
    assert wait_for(lambda: ended(airflow, "migrate_namespaces", f"{run_id}__wave-2")) == "success"
    tasks = {task["task_id"]: task["state"] for task in airflow.tasks("migrate_namespaces", f"{run_id}__wave-2")}
    assert (tasks["prepare_green"], tasks["cut_over"]) == ("skipped", "skipped")


def answer_wave(airflow: AirflowStack, run_id: str, answer: str) -> dict[str, Any]:
    """Wait until a person is asked, and answer; returns what was asked."""
    wait_for(lambda: airflow.last_run("migrate_namespaces") == run_id or None)
    question = wait_for(lambda: airflow.question("migrate_namespaces", run_id, "approve_wave"))
    airflow.answer("migrate_namespaces", run_id, "approve_wave", answer)
    return dict(question)


@pytest.mark.parametrize(
    ("answer", "applied"), [("Approve", "success"), pytest.param("Reject", "skipped", marks=pytest.mark.long)]
)
def test_a_plan_waits_for_a_person_and_a_no_changes_nothing(
    airflow: AirflowStack,
    blue: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    answer: str,
    applied: str,
) -> None:
    name = new_namespace()
    asyncio.run(build_estate(blue, EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=1)))
    conf = {"source": "pulsar_blue", "target": "pulsar_green", "selection": [str(name)]}
    run_id = airflow.trigger("onboard_cluster", conf)
    question = wait_for(lambda: airflow.question("onboard_cluster", run_id, "approve_plan"))
    assert "for green" in question["subject"]
    assert str(name) in question["body"]
    airflow.answer("onboard_cluster", run_id, "approve_plan", answer)
    assert wait_for(lambda: ended(airflow, "onboard_cluster", run_id)) == "success"
    tasks = {task["task_id"]: task["state"] for task in airflow.tasks("onboard_cluster", run_id)}
    assert tasks["apply_plan"] == applied
    assert f": {answer} by " in airflow.report("onboard_cluster", run_id)


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        pytest.param({"namespaces": ["a/b"], "namespace": 1}, "did you mean 'namespaces'?", marks=pytest.mark.long),
        ({"namespaces": ["nobody/nowhere"]}, "blue has no 'nobody/nowhere', which 'namespaces' names"),
        pytest.param(
            {"namespaces": ["a/b"], "green": "pulsar_gren"},
            "Connection 'pulsar_gren' does not exist.",
            marks=pytest.mark.long,
        ),
    ],
    ids=["unknown key", "no such namespace", "no such connection"],
)
def test_a_wrong_configuration_fails_in_the_first_task_with_a_sentence(
    airflow: AirflowStack, conf: dict[str, Any], sentence: str
) -> None:
    run_id, state = finish(airflow, "migrate_namespaces", **BLUE_TO_GREEN | conf)
    assert state == "failed"
    assert sentence in airflow.log("migrate_namespaces", run_id, "read_request")
    address = f"/pulsar-fleet/report?{urlencode({'run': f'migrate_namespaces/{run_id}'})}"
    for task in ("read_request", "wait_drained", "write_report"):
        assert airflow.links("migrate_namespaces", run_id, task) == {"Fleet": "/pulsar-fleet/", "Report": address}


def test_what_the_form_would_not_take_is_refused_by_the_api_too(airflow: AirflowStack) -> None:
    with pytest.raises(PreconditionFailed, match="does not match"):
        airflow.trigger("migrate_namespaces", BLUE_TO_GREEN | {"namespaces": ["not a namespace"]})
