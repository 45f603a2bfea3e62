"""The demo's estate through Airflow's API, with configurations as its form sends them: there, back and there again."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from tests.contract.migration.test_demo_estate import WHOLE, consume, estate
from tests.e2e.test_scheduler import ended, finish

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.workload import Estate

__all__ = ["estate"]

WAY_SECONDS = 1500
SIDES = {"blue": "pulsar_blue", "green": "pulsar_green"}
FORM = re.compile(r"""\{"blue": "[^"]+", "green": "[^"]+", "namespaces": \["[^"]+"\]\}""")


async def succeed(airflow: AirflowStack, dag_id: str, conf: dict[str, Any]) -> None:
    """A run, and those of its further waves."""
    run_id = airflow.trigger(dag_id, conf)
    while run_id:
        async with asyncio.timeout(WAY_SECONDS):
            while (state := ended(airflow, dag_id, run_id)) is None:
                await asyncio.sleep(1)
        failed = [task["task_id"] for task in airflow.tasks(dag_id, run_id) if task["state"] == "failed"]
        assert state == "success", "\n".join(airflow.log(dag_id, run_id, task) for task in failed)
        newest = airflow.last_run(dag_id)
        run_id = newest if newest != run_id and newest.startswith(run_id.partition("__wave")[0]) else ""


async def require_on(estate: Estate, opened: AdminClient, closed: AdminClient) -> None:
    for namespace in estate.namespaces:
        flags = [(await admin.namespace(namespace.name) or {}).get("migrated") for admin in (closed, opened)]
        assert flags == [True, False], namespace.name
        listed = {*await opened.topics(namespace.name), *await opened.partitioned_topics(namespace.name)}
        assert {topic.name for topic in namespace.topics} <= listed


@pytest.mark.full
@pytest.mark.skipif(not WHOLE, reason="takes a quarter of an hour: `make test-full`")
@pytest.mark.timeout(4000)
async def test_every_namespace_is_migrated_failed_back_and_migrated_again_with_the_form_that_a_refusal_names(
    estate: Estate, airflow: AirflowStack, on_blue: AdminClient, on_green: AdminClient
) -> None:
    first, *others = [tenant.name for tenant in estate.tenants]
    names = [str(namespace.name) for namespace in estate.namespaces]
    moving = {**SIDES, "auto_approve": True}
    returning = {"allow_removal": True, "strategy": "redirect"}
    for tenants in filter(None, ([first], others)):
        await succeed(airflow, "migrate_namespaces", {**moving, "namespaces": tenants})
    await require_on(estate, on_green, on_blue)
    await consume(estate, on_green)
    await succeed(airflow, "fail_back_namespaces", {**SIDES, **returning, "namespaces": names})
    await require_on(estate, on_blue, on_green)
    await consume(estate, on_blue)
    run_id, state = await asyncio.to_thread(finish, airflow, "migrate_namespaces", **moving, namespaces=names)
    refusal = airflow.log("migrate_namespaces", run_id, "check_gates")
    forms = [json.loads(text) for text in set(FORM.findall(refusal))]
    assert (state, sorted(name for form in forms for name in form["namespaces"])) == ("failed", sorted(names)), refusal
    await succeed(airflow, "fail_back_namespaces", {**forms[0], **returning, "namespaces": names})
    await require_on(estate, on_green, on_blue)
