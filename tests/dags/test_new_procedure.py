"""The example in docs/new_procedure.md is a whole procedure: a form, a DAG, a command, a report."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.tools.settings_tables import conf_table
from tests.support.dag_runs import report, states

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "new_procedure.md"
Play = Callable[..., Any]
Command = Callable[..., subprocess.CompletedProcess[str]]


def part(name: str) -> str:
    """A block of code of the page."""
    (found,) = re.findall(rf"<!-- {name} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where Airflow finds the module; its DAG file is in `dags/` there."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "unload_namespaces.py").write_text(part("module"))
    (folder / "dags").mkdir()
    (folder / "dags" / "unload.py").write_text(part("dag"))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("unload_namespaces", None)


@pytest.fixture
def example(dag_bag: Any, folder: Path) -> Any:
    """The DAG of the example, among those of the product."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    bag = DagBag(dag_folder=str(folder / "dags"), bundle_name="tests", bundle_path=folder / "dags")
    assert bag.import_errors == {}
    sync_bag_to_db(bag, bundle_name="tests", bundle_version=None)
    dag_bag.dags.update(bag.dags)
    yield bag.dags["unload_namespaces"]
    del dag_bag.dags["unload_namespaces"]


@pytest.fixture
def namespace(blue: ClusterConnection, new_namespace: Callable[[], NamespaceName]) -> NamespaceName:
    name = new_namespace()

    async def make() -> None:
        async with AdminClient(blue) as admin:
            cluster = await admin.cluster_name()
            await admin.put(f"/tenants/{name.tenant}", {"allowedClusters": [cluster]})
            await admin.put_namespace(name, {"replication_clusters": [cluster]})
            await admin.create_partitioned_topic(TopicName(name, "events"), 3)

    asyncio.run(make())
    return name


@pytest.fixture
def command(folder: Path, blue: ClusterConnection, records: Path) -> Command:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
        line = [sys.executable, "-m", "unload_namespaces", *arguments]
        return subprocess.run(line, capture_output=True, text=True, env=environment, check=False)

    return run


def test_its_tasks_are_its_steps_and_its_form_has_its_settings(example: Any, folder: Path) -> None:
    procedure = importlib.import_module("unload_namespaces").PROCEDURE
    assert tuple(example.task_ids) == procedure.steps()
    assert [*example.params] == [*procedure.settings]
    assert "| `pause_seconds` | number, 0 to 600 | `1.0` | How long to wait after each namespace. |" in conf_table(
        example
    )


def test_its_dag_checks_asks_unloads_and_reports(example: Any, play: Play, namespace: NamespaceName) -> None:
    dry = play("unload_namespaces", cluster="pulsar_blue", namespaces=[str(namespace)], dry_run=True)
    assert states(dry)["unload"] == "skipped"
    assert f"unload {namespace}" in report(dry)

    done = play("unload_namespaces", cluster="pulsar_blue", namespaces=[str(namespace)], auto_approve=True)
    assert set(states(done).values()) == {"success"}
    assert "# 3 topics, 3 before, are served by 1 brokers." in report(done)
    assert "Approve by the run's conf" in report(done)

    refused = play("unload_namespaces", cluster="pulsar_blue", namespaces=["nobody/here"], auto_approve=True)
    assert states(refused)["unload"] == "upstream_failed"
    assert "namespace-missing" in report(refused)


def test_its_command_refuses_reports_and_goes_on(
    command: Command, blue: ClusterConnection, namespace: NamespaceName
) -> None:
    shown = command("--help")
    assert "--pause-seconds" in shown.stdout
    dry = command(blue.admin_url, "--namespaces", str(namespace), "--dry-run")
    assert (dry.returncode, f"unload {namespace}" in dry.stdout) == (0, True)
    refused = command(blue.admin_url, "--namespaces", "nobody/here", "--yes")
    assert (refused.returncode, "Nothing has been changed" in refused.stderr) == (4, True)
    wrong = command(blue.admin_url, "--namespaces", str(namespace), "--pause-seconds", "601", "--yes")
    assert (wrong.returncode, "'pause_seconds' is 601.0: set it to at least 0 and at most 600." in wrong.stderr) == (
        2,
        True,
    )

    done = command(blue.admin_url, "--namespaces", str(namespace), "--pause-seconds", "0", "--yes")
    assert (done.returncode, "| unload | 1 namespaces unloaded. |" in done.stdout) == (0, True), done.stderr


def test_a_run_that_was_cut_does_what_is_left(
    folder: Path, command: Command, blue: ClusterConnection, namespace: NamespaceName
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    line = [sys.executable, "-m", "unload_namespaces", blue.admin_url, "--namespaces", str(namespace), "--yes"]
    process = subprocess.Popen(
        [*line, "--pause-seconds", "5"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    for text in process.stderr:
        if text.strip() == "unload":
            break
    process.kill()
    process.communicate()
    (run,) = Ledger.open().runs_below("cli")
    resumed = command("--resume", run.run_id, "--yes")
    assert (resumed.returncode, "| load_topics | 3 topics, 3 before" in resumed.stdout) == (0, True), resumed.stderr
    assert "count_topics" not in resumed.stderr
