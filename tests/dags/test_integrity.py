"""The DAG files: cheap to parse, stable, without the network, and documented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
DAG_FILES = sorted((REPOSITORY / "dags").glob("*.py"))
LINES = 150

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
def test_every_field_of_a_form_is_described_and_its_default_is_valid(dag_bag: Any, dag_id: str) -> None:
    for name, param in dag_bag.dags[dag_id].params.items():
        field = dag_bag.dags[dag_id].params.get_param(name)
        assert field.description, f"{name} has no description"
        assert field.schema.get("title"), f"{name} has no title"
        field.resolve()
        assert param is not None


@pytest.mark.parametrize("dag_id", [file.stem for file in DAG_FILES])
def test_a_dag_has_a_page_and_a_text_of_its_own(dag_bag: Any, dag_id: str) -> None:
    from docs.tools.settings_tables import conf_table

    assert dag_bag.dags[dag_id].doc_md
    assert conf_table(dag_bag.dags[dag_id]) in (REPOSITORY / "docs" / f"{dag_id}.md").read_text()


def test_the_package_under_plugins_is_not_executed_a_second_time() -> None:
    ignored = (REPOSITORY / "plugins" / ".airflowignore").read_text().split()
    assert "pulsar_fleet/" in ignored


def test_the_connection_type_is_known_to_airflow(dag_bag: Any) -> None:
    from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

    assert ProvidersManagerTaskRuntime().hooks["pulsar"].hook_name == "Apache Pulsar cluster"


def test_subscriptions_can_be_left_out_of_a_verification(dag_bag: Any) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    dag = dag_bag.dags["verify_clusters"]
    with pytest.raises(AirflowSkipException):
        dag.get_task("compare_subscriptions").execute({"params": {"subscriptions": False}})
    assert dag.get_task("read_verdict").trigger_rule == "none_failed"
