"""A real Airflow and a real browser. Its connections lead nowhere: forms are looked at, clusters are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.support.chromium import browser

from pulsar_sandbox.demo.stack import AirflowStack

expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    """Airflow as `make demo` starts it."""
    stack = AirflowStack.launch(tmp_path_factory.mktemp("airflow"))
    try:
        stack.wait_ready("onboard_cluster", "migrate_namespaces", "verify_clusters")
        for name in ("pulsar_blue", "pulsar_green"):
            stack.put_connection(name, conn_type="pulsar", host="http://127.0.0.1:9", extra="{}")
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def page(airflow: AirflowStack) -> Iterator[Page]:
    """The page of `migrate_namespaces`."""
    with browser() as running:
        opened = running.new_page(viewport={"width": 1400, "height": 1400})
        opened.goto(f"{airflow.url}/dags/migrate_namespaces")
        opened.get_by_role("button", name="Trigger").first.wait_for()
        yield opened
