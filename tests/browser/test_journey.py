"""A migration as an operator lives through it: question on the Fleet page, approval, end, report, evidence."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import FrameLocator, Page, expect
from tests.browser.test_fleet import PASSWORDS, PICTURES, logged_in, token, wait_for_dag, wait_for_login
from tests.support.dag_runs import BLUE_TO_GREEN

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox.demo.stack import AirflowStack

pytestmark = [pytest.mark.fleet, pytest.mark.long, pytest.mark.timeout(900)]

DAG = "migrate_namespaces"
WAIT = 150_000
"""For a step of the run, in milliseconds."""


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, blue: ClusterConnection, green: ClusterConnection
) -> Iterator[AirflowStack]:
    """Airflow with its login, one administrator, and connections to two real clusters."""
    before, folder = dict(os.environ), tmp_path_factory.mktemp("airflow")
    os.environ.pop("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", None)
    (folder / "passwords.json").write_text(json.dumps(PASSWORDS))
    settings = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
    }
    for cluster in (blue, green):
        extra = {"service_url": cluster.service_url}
        settings[f"AIRFLOW_CONN_PULSAR_{cluster.name.upper()}"] = json.dumps(
            {"conn_type": "pulsar", "host": cluster.admin_url, "extra": extra}
        )
    stack = AirflowStack.launch(folder, settings=settings)
    try:
        wait_for_login(stack.url)
        wait_for_dag(stack, DAG)
        yield stack
    finally:
        stack.stop()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def name(airflow: AirflowStack, blue: ClusterConnection, new_namespace: Callable[[], NamespaceName]) -> NamespaceName:
    """A namespace whose migration has begun."""
    chosen = new_namespace()
    asyncio.run(make(blue, chosen))
    start(airflow, chosen)
    return chosen


@pytest.fixture
def page(airflow: AirflowStack, name: NamespaceName) -> Iterator[Page]:
    """Ann has logged in, after the namespace was made."""
    with logged_in(airflow) as opened:
        yield opened


def test_a_wave_is_approved_from_the_page_and_followed_to_its_evidence(page: Page, name: NamespaceName) -> None:
    fleet = open_fleet(page)
    fleet.get_by_role("link", name="Read it again").click()
    question = fleet.get_by_role("listitem").filter(has_text="Wave 1 of 1")
    question.get_by_role("link", name="Review and answer").click(timeout=WAIT)
    page.wait_for_url("**/required_actions")
    expect(page.get_by_text(str(name)).first).to_be_visible()
    # Airflow 3.3 forgets an answer that comes before its scheduler has seen that the task waits.
    time.sleep(3)
    page.get_by_role("button", name="Approve").click()
    fleet = open_fleet(page)
    fleet.get_by_role("row", name=f"{DAG}/").get_by_role("link", name="migration").click()
    expect(fleet.get_by_role("heading", level=1)).to_contain_text(f"{DAG}/")
    fleet.get_by_role("link", name="Read it again").click()
    expect(fleet.get_by_role("heading", name="succeeded")).to_be_visible(timeout=WAIT)
    expect(fleet.get_by_role("row", name=str(name))).to_contain_text("✓ finished")
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / "migration_page.png")
    fleet.get_by_role("link", name="stop").click()
    expect(fleet.get_by_role("link", name="Read it again")).to_be_visible()
    fleet.get_by_role("link", name="report").click()
    expect(fleet.get_by_role("heading", level=1)).to_contain_text("1 namespace")
    page.go_back()
    fleet.get_by_role("link", name="evidence").click()
    expect(fleet.get_by_text("How to verify this file")).to_be_visible()
    expect(fleet.get_by_text("Approve by ann").or_(fleet.get_by_role("cell", name="ann")).first).to_be_attached()


def open_fleet(page: Page) -> FrameLocator:
    page.get_by_text("Fleet", exact=True).first.click()
    fleet = page.frame_locator("iframe")
    expect(fleet.get_by_role("heading", level=1)).to_have_text("Fleet")
    return fleet


def start(airflow: AirflowStack, name: NamespaceName) -> None:
    """As somebody starts a run who is not in this browser."""
    api = httpx.Client(base_url=f"{airflow.url}/api/v2", headers={"Authorization": f"Bearer {token(airflow, 'ann')}"})
    with api:
        api.patch(f"/dags/{DAG}", json={"is_paused": False}).raise_for_status()
        body = {"conf": BLUE_TO_GREEN | {"namespaces": [str(name)]}, "logical_date": None}
        api.post(f"/dags/{DAG}/dagRuns", json=body).raise_for_status()


async def make(blue: ClusterConnection, name: NamespaceName) -> None:
    """A namespace with a topic."""
    async with AdminClient(blue) as admin:
        own = await admin.cluster_name()
        await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        await admin.put_namespace(name, {"replication_clusters": [own]})
        await admin.create_partitioned_topic(TopicName(name, "events"), 2)
