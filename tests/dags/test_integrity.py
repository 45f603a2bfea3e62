"""The DAG files: cheap to parse, stable, without the network, and documented."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.airflow.run import store_failure
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures.procedure import Session, Skipped
from pulsar_fleet.procedures.verification import compare_subscriptions
from pulsar_fleet.settings.capacity import VARIABLE

REPOSITORY = Path(__file__).parents[2]
DAG_FILES = sorted((REPOSITORY / "dags").glob("*.py"))
LINES = 150
POLICY = {
    "retries": 3,
    "delay": 10.0,
    "backoff": True,
    "max_delay": 300.0,
    "on_failure": store_failure,
}
"""Of every task: what can pass without an operator is retried, the report gets the reason."""
RUNS = {
    "abort_migration": (1, None),
    "fail_back_namespaces": (1, None),
    "fail_over_applications": (16, None),
    "forward_acknowledgments": (1, 32),
    "migrate_namespaces": (1, None),
    "move_clients": (16, None),
    "onboard_cluster": (16, None),
    "reconcile_policies": (1, 48),
    "replicate_namespaces": (16, None),
    "return_clients": (16, None),
    "serve_read_only": (16, None),
    "sync_metadata": (1, 8),
    "verify_clusters": (16, None),
    "verify_read_only": (16, 48),
    "verify_replication": (1, 168),
    "watch_overrides": (1, 8),
    "watch_read_only": (1, 8),
    "watch_replication": (1, 8),
}
"""DAG → how many of its runs may go on at once, and the hours after which Airflow ends one."""
SPARK_STEPS = {
    "fail_back_namespaces": {"verify_copy", "verify_messages"},
    "migrate_namespaces": {"verify_copy", "verify_messages"},
    "onboard_cluster": {"verify_equal"},
    "reconcile_policies": {"find_drift"},
    "verify_clusters": {"compare_messages", "compare_subscriptions"},
    "verify_read_only": {"compare_messages"},
    "verify_replication": {"compare_messages"},
}

VERIFY_POOLS = {
    "freeze_bounds": "clusters",
    "compare_messages": "jobs",
    "compare_subscriptions": "jobs",
    "read_verdict": "clusters",
}

OFFLINE = """
import socket, sys, json, time
from airflow.dag_processing.dagbag import DagBag

class Closed(socket.socket):
    def connect(self, address):
        if self.family != socket.AF_UNIX:
            raise AssertionError(f"a DAG file opened a connection to {address}")

socket.socket = Closed
began = time.process_time()
bag = DagBag(dag_folder=sys.argv[1], bundle_path=sys.argv[1], bundle_name="tests")
print("RESULT " + json.dumps({
    "errors": {str(k): v for k, v in bag.import_errors.items()},
    "dags": sorted(bag.dags),
    "seconds": {str(s.file): s.duration.total_seconds() for s in bag.dagbag_stats},
    "heavy": sorted({"pulsar", "pyspark", "pandas", "pyarrow", "httpx", "sqlalchemy.ext", "numpy", "aiohttp",
                     "tenacity", "pulsar_fleet.cluster.admin.client"}
                    & (set(sys.modules) - BEFORE)),
}))
"""


@pytest.fixture(scope="module")
def parsed() -> dict[str, Any]:
    """What parsing all DAG files in a fresh interpreter without a network gives."""
    script = OFFLINE.replace("began =", "BEFORE = set(sys.modules)\nbegan =")
    done = subprocess.run(
        [sys.executable, "-c", script, str(REPOSITORY / "dags")],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result


def test_every_dag_file_imports_without_the_network(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}


def test_every_dag_file_defines_the_dag_of_its_name(parsed: dict[str, Any]) -> None:
    assert parsed["dags"] == [file.stem for file in DAG_FILES]


def test_parsing_pulls_in_nothing_heavy(parsed: dict[str, Any]) -> None:
    assert parsed["heavy"] == []


@pytest.mark.parametrize("file", DAG_FILES, ids=lambda file: file.stem)
def test_a_dag_file_reads_like_a_runbook(file: Path) -> None:
    assert len(file.read_text().splitlines()) < LINES


@pytest.mark.parametrize("dag_id", [file.stem for file in DAG_FILES])
def test_a_dag_serialises_the_same_twice(dag_id: str) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    file = REPOSITORY / "dags" / f"{dag_id}.py"
    bags = [DagBag(dag_folder=str(file), bundle_name="tests", bundle_path=file.parent) for _ in range(2)]
    first, second = (json.dumps(DagSerialization.to_dict(bag.dags[dag_id]), sort_keys=True) for bag in bags)
    assert first == second


@pytest.mark.parametrize("dag_id", [file.stem for file in DAG_FILES])
def test_every_field_of_a_form_is_described_and_valid_or_required(dag_bag: Any, dag_id: str) -> None:
    from docs.tools.settings_tables import is_required

    for name in dag_bag.dags[dag_id].params:
        field = dag_bag.dags[dag_id].params.get_param(name)
        assert field.description, f"{name} has no description"
        assert field.schema.get("title"), f"{name} has no title"
        # Airflow's form starts nothing while a text that may not be null is empty: these runs need that one.
        assert field.value != "" or (name == "namespace" and "read_only" in dag_id), f"{name} may not stay empty"
        if is_required(field):
            with pytest.raises(ValueError, match="Failed validating"):
                field.resolve()
        else:
            field.resolve()
        for example in field.schema.get("examples", ()):
            deepcopy(field).resolve(example)


@pytest.mark.parametrize("dag_id", [file.stem for file in DAG_FILES])
def test_a_dag_has_a_page_and_a_text_of_its_own(dag_bag: Any, dag_id: str) -> None:
    from docs.tools.settings_tables import conf_table

    assert dag_bag.dags[dag_id].doc_md
    assert conf_table(dag_bag.dags[dag_id]) in (REPOSITORY / "docs" / f"{dag_id}.md").read_text()


def test_every_task_of_a_dag_has_its_retry_policy(dag_bag: Any) -> None:
    tasks = [task for dag in dag_bag.dags.values() for task in dag.tasks]
    assert [policy_of(task) for task in tasks] == [POLICY] * len(tasks)


def policy_of(task: Any) -> dict[str, Any]:
    """What Airflow does when this task fails."""
    # A mapped task keeps its callback as it was given, other tasks keep a list.
    (callback,) = [task.on_failure_callback] if task.is_mapped else task.on_failure_callback
    return {
        "retries": task.retries,
        "delay": task.retry_delay.total_seconds(),
        "backoff": bool(task.retry_exponential_backoff),
        "max_delay": task.max_retry_delay.total_seconds(),
        "on_failure": callback,
    }


def test_every_task_has_a_limit_and_every_run_without_a_person(dag_bag: Any) -> None:
    limits = {(dag, task.task_id): task.execution_timeout for dag in RUNS for task in dag_bag.dags[dag].tasks}
    assert limits == {
        (dag, task): timedelta(hours=24 if task in SPARK_STEPS.get(dag, ()) else 4) for dag, task in limits
    }
    runs = {name: (dag.max_active_runs, dag.dagrun_timeout) for name, dag in dag_bag.dags.items()}
    assert runs == {name: (most, timedelta(hours=hours) if hours else None) for name, (most, hours) in RUNS.items()}


def test_the_pools_take_what_loads_clusters_and_no_migration(
    dag_bag: Any,  # it made the database
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, '{"pools": {"step": "clusters", "spark": "jobs"}, "jobs_per_run": 2}')
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(REPOSITORY / "dags"), bundle_name="tests", bundle_path=REPOSITORY / "dags")
    pools = {(name, task.task_id): task.pool for name, dag in bag.dags.items() for task in dag.tasks}
    assert {name: pool for name, pool in pools.items() if name[0] in ("migrate_namespaces", "verify_clusters")} == {
        name: VERIFY_POOLS.get(name[1], "default_pool") if name[0] == "verify_clusters" else "default_pool"
        for name in pools
        if name[0] in ("migrate_namespaces", "verify_clusters")
    }
    jobs = {name for name, pool in pools.items() if pool == "jobs"}
    restored = ("migrate_namespaces", "fail_back_namespaces")
    assert jobs == {(dag, task) for dag, tasks in SPARK_STEPS.items() if dag not in restored for task in tasks}
    assert bag.dags["verify_clusters"].get_task("compare_messages").max_active_tis_per_dagrun == 2


def test_the_package_under_plugins_is_not_executed_a_second_time() -> None:
    ignored = (REPOSITORY / "plugins" / ".airflowignore").read_text().split()
    assert "pulsar_fleet/" in ignored


def test_the_connection_type_is_known_to_airflow(dag_bag: Any) -> None:
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    assert ProvidersManagerTaskRuntime().hooks["pulsar"].hook_name == "Apache Pulsar cluster"


def test_subscriptions_can_be_left_out_of_a_verification(dag_bag: Any, records: Path) -> None:
    off = Session({"subscriptions": False}, Run.open("verify_clusters/1"), {})
    assert isinstance(asyncio.run(compare_subscriptions(off)), Skipped)
    assert dag_bag.dags["verify_clusters"].get_task("read_verdict").trigger_rule == "none_failed"


def test_every_dag_runs_in_a_test_of_every_day(dag_bag: Any) -> None:
    folders = (path for name in ("dags", "e2e") for path in sorted((REPOSITORY / "tests" / name).glob("test_*.py")))
    assert set(dag_bag.dags) - {dag_id for path in folders for dag_id in played(path)} == set()


def played(path: Path) -> Iterator[str]:
    """The DAGs that the tests of a file run which are not long and expect success."""
    tree = ast.parse(path.read_text())
    if any("long" in ast.unparse(node) for node in tree.body if ast.unparse(node).startswith("pytestmark")):
        return
    for test in (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        text = ast.unparse(test)
        if "'success'" in text and not any("mark.long" in ast.unparse(one) for one in test.decorator_list):
            yield from re.findall(r"""(?:play|run|trigger)\('(\w+)'""", text)
