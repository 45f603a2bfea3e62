"""A real scheduler tells the operator's own notifier of a run that failed, and of one that is late."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.dag_runs import BLUE_TO_GREEN

from pulsar_fleet.settings.alerts import VARIABLE
from pulsar_sandbox.demo.stack import AirflowStack

pytestmark = [pytest.mark.fleet, pytest.mark.long, pytest.mark.onboarding, pytest.mark.timeout(600)]

SECONDS = 180
DAG = "migrate_namespaces"
PAGER = """
from pathlib import Path

from airflow.sdk import BaseNotifier


class Pager(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, *, folder, text, **kwargs):
        super().__init__(**kwargs)
        self.folder, self.text = folder, text

    def notify(self, context):
        (Path(self.folder) / "failed").write_text(self.text)

    async def async_notify(self, context):
        (Path(self.folder) / "late").write_text(str(context["dag_run"]["dag_id"]))
"""
"""A module of the operator."""


@pytest.fixture
def airflow(tmp_path: Path) -> Iterator[AirflowStack]:
    """Airflow with that module, and a deadline of three seconds."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "pager.py").write_text(PAGER)
    alerts = {
        "callback": "pager.Pager",
        "arguments": {"folder": str(tmp_path), "text": "{{ dag_run.dag_id }} failed"},
        "deadlines": {DAG: 0.05},
    }
    before = dict(os.environ)
    os.environ.pop("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", None)
    settings = {VARIABLE: json.dumps(alerts), "PYTHONPATH": str(tmp_path / "modules")}
    stack = AirflowStack.launch(tmp_path / "airflow", settings=settings)
    try:
        stack.wait_ready(DAG)
        yield stack
    finally:
        stack.stop()
        os.environ.clear()
        os.environ.update(before)


def test_the_notifier_of_the_operator_hears_of_a_failed_and_of_a_late_run(
    airflow: AirflowStack, tmp_path: Path
) -> None:
    # The connections do not exist.
    run_id = airflow.trigger(DAG, BLUE_TO_GREEN | {"namespaces": ["acme/orders"]})
    wait_until(lambda: airflow.run_state(DAG, run_id) == "failed")
    wait_until((tmp_path / "failed").exists)
    assert (tmp_path / "failed").read_text() == f"{DAG} failed"
    wait_until((tmp_path / "late").exists)
    assert (tmp_path / "late").read_text() == DAG


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(1)
