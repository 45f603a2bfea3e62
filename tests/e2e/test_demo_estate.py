"""What `make up` leaves: every namespace goes to green, back, and there again, by forms as Airflow sends them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.migration.test_demo_estate import consume
from tests.e2e.test_scheduler import ended
from tests.support.dag_runs import BLUE_TO_GREEN

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.settings.migration import FAILBACK_SETTINGS, SETTINGS
from pulsar_sandbox import Sandbox
from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.demo.story import LIVE, SIDES
from pulsar_sandbox.workload import Counts, Estate, EstateSpec, build_estate
from pulsar_sandbox.workload.layout import plan_estate

pytestmark = [pytest.mark.fleet, pytest.mark.migration]

MIGRATE, FAIL_BACK = "migrate_namespaces", "fail_back_namespaces"
# Airflow sends every field of the form, also those that nobody has changed.
FORMS = {
    dag_id: {name: setting.unset for name, setting in settings.items()} | BLUE_TO_GREEN
    for dag_id, settings in ((MIGRATE, SETTINGS), (FAIL_BACK, FAILBACK_SETTINGS))
}
RUN_SECONDS = 900
SPEC = EstateSpec(live=LIVE)
NAMESPACES = {str(namespace.name): namespace for tenant in plan_estate(SPEC) for namespace in tenant.namespaces}
BLOCKER = re.compile(r"\bBLOCKER (\S+) +(?:\w+-?\w+://)?([^/\s]+/[^/\s]+)")
FORM = re.compile(r"""fail_back_namespaces instead, .*?: (\{"blue": "[^"]+", "green": "[^"]+", "namespaces": .*?\})""")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Path]:
    """The folder of what `make up` has left running; `make down` stops it."""
    command = [sys.executable, "-m", "pulsar_fleet.cli", "demo", "--folder", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    try:
        subprocess.run([*command, "--keep"], env=environment, check=True)
        yield tmp_path
    finally:
        subprocess.run([*command, "--stop"], env=environment, check=True)


@pytest.fixture
def airflow(demo: Path) -> Iterator[AirflowStack]:
    """The demo's Airflow."""
    stack = AirflowStack.attach(demo / "airflow")
    try:
        stack.wait_ready(*FORMS)
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def sides(demo: Path) -> list[ClusterConnection]:
    """The demo's blue and green."""
    sandbox = Sandbox.attach(demo / "sandbox")
    return [
        ClusterConnection(name=name, admin_url=sandbox[name].admin_url, service_url=sandbox[name].service_url)
        for name in SIDES
    ]


async def run(airflow: AirflowStack, dag_id: str, **filled_in: Any) -> tuple[str, str]:
    """Send the form; returns the run's id, and the logs of its failed tasks: empty if it succeeded."""
    run_id = airflow.trigger(dag_id, FORMS[dag_id] | filled_in)
    return run_id, await failures(airflow, dag_id, run_id)


async def failures(airflow: AirflowStack, dag_id: str, run_id: str) -> str:
    """Wait for the end of a run; returns the logs of its failed tasks: empty if it succeeded."""
    async with asyncio.timeout(RUN_SECONDS):
        while (state := ended(airflow, dag_id, run_id)) is None:
            await asyncio.sleep(1)
    tasks = [task["task_id"] for task in airflow.tasks(dag_id, run_id) if task["state"] == "failed"]
    logs = [airflow.log(dag_id, run_id, task) for task in tasks]
    return "" if state == "success" else "\n".join([f"{dag_id} {run_id}: {state}", *logs])


async def migrate(airflow: AirflowStack, *selection: str) -> None:
    """Migrate what is selected, with the runs that the first one starts for its further waves."""
    run_id, failed = await run(airflow, MIGRATE, namespaces=selection, auto_approve=True)
    assert not failed, failed
    while (newest := airflow.last_run(MIGRATE)) != run_id:
        run_id, failed = newest, await failures(airflow, MIGRATE, newest)
        assert not failed, failed


async def fail_back(airflow: AirflowStack, leaving: ClusterConnection, form: dict[str, Any]) -> dict[str, set[str]]:
    """Send the form, do what its refusal says and no more, and send it again; returns the blockers."""
    form = {**form, "auto_approve": True}
    _, refusal = await run(airflow, FAIL_BACK, **form)
    refused, remedies = blockers(refusal), dict[str, Any]()
    if namespaces := refused.get("history-cannot-return"):
        async with AdminClient(leaving) as admin:
            await consume([NAMESPACES[name] for name in namespaces], admin)
        remedies["strategy"] = "redirect"
    if "removal-not-allowed" in refused:
        remedies["allow_removal"] = True
    _, failed = await run(airflow, FAIL_BACK, **form, **remedies)
    if "compacted-values-stay" in blockers(failed):
        # With a redirect its values stay where they are: the application is to write them again.
        remedies["waivers"] = [
            {"id": "compacted-values-stay", "who": "ann", "why": "the application writes them again"}
        ]
        _, failed = await run(airflow, FAIL_BACK, **form, **remedies)
    assert not failed, failed
    return refused


def blockers(refusal: str) -> dict[str, set[str]]:
    """Blocker → the namespaces for which it is reported."""
    named: dict[str, set[str]] = {}
    for blocker, namespace in BLOCKER.findall(refusal):
        named.setdefault(blocker, set()).add(namespace)
    return named


async def ensure_on(opened: ClusterConnection, closed: ClusterConnection) -> Estate:
    """Clients of every namespace are redirected from `closed` to `opened`; creates what `opened` lacks of the demo."""
    async with AdminClient(opened) as on_opened, AdminClient(closed) as on_closed:
        for name, namespace in NAMESPACES.items():
            flags = [(await admin.namespace(namespace.name) or {}).get("migrated") for admin in (on_closed, on_opened)]
            assert flags == [True, False], name
    return await build_estate(opened, SPEC)


@pytest.mark.long
@pytest.mark.timeout(4000)
async def test_every_namespace_migrates_fails_back_and_migrates_by_printed_forms(
    airflow: AirflowStack, sides: list[ClusterConnection]
) -> None:
    blue, green = sides
    names = set(NAMESPACES)
    # The demo has moved a namespace of the tenant already: it is left out.
    await migrate(airflow, "acme")
    await migrate(airflow, "all")
    assert (await ensure_on(green, blue)).created == Counts()

    blocked = await fail_back(airflow, green, {"namespaces": sorted(names)})
    assert blocked == dict.fromkeys(("removal-not-allowed", "history-cannot-return"), names)
    # The messages that were read stay on green; applications write new ones on blue.
    back = await ensure_on(blue, green)
    assert back.created == Counts(messages=back.holds.messages, backlog=back.holds.backlog)

    _, refusal = await run(airflow, MIGRATE, namespaces=["all"])
    assert blockers(refusal) == dict.fromkeys(("namespace-migrated", "topic-terminated-on-target"), names), refusal
    forms = [json.loads(text) for text in dict.fromkeys(FORM.findall(refusal))]
    assert sorted(name for form in forms for name in form["namespaces"]) == sorted(names)
    # A form as it is printed, then the others in one.
    first, *others = forms
    together = {**first, "namespaces": [name for form in others for name in form["namespaces"]]}
    for form in (first, together):
        assert await fail_back(airflow, blue, form) == {"removal-not-allowed": set(form["namespaces"])}
    assert (await ensure_on(green, blue)).created == Counts()
