"""Each supported line of Airflow, in its own environment: it imports every DAG, its scheduler runs procedures."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.test_scheduler import answer_wave, ended, finish, wait_for
from tests.support.airflow_lines import LINES, PYTHONS, REPOSITORY, copy_source, find_python, providers
from tests.support.dag_runs import BLUE_TO_GREEN

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_sandbox.demo.stack import AirflowStack
from pulsar_sandbox.workload import EstateSpec, build_estate

pytestmark = [pytest.mark.fleet, pytest.mark.airflow, pytest.mark.timeout(600)]

EXAMPLES = ("example_pulsar_publish_and_consume", "example_pulsar_terminated")
DAGS = sorted(file.stem for file in (REPOSITORY / "dags").glob("*.py"))
IMPORT = """
import json, sys, warnings
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:
    from airflow.models.dagbag import DagBag
from airflow.serialization.serialized_objects import SerializedDAG
try:
    from airflow.serialization.serialized_objects import DagSerialization as Serialization
except ImportError:
    Serialization = SerializedDAG

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    bag = DagBag(dag_folder=sys.argv[1])
for dag in bag.dags.values():
    if dag.schedule is not None:
        dag.params.validate()
    Serialization.from_dict(Serialization.to_dict(dag))
print("RESULT " + json.dumps({
    "dags": sorted(bag.dags),
    "errors": {str(file): error for file, error in bag.import_errors.items()},
    "warnings": sorted({str(warning.message) for warning in seen}),
}))
"""
OF_THE_LINE = {"3.1": ["The `airflow.operators.branch.BranchMixIn` attribute is deprecated"]}
"""What the provider `standard` warns of on a line of Airflow that is older than it is."""


def imported(programs: Path, folder: Path, home: Path, **more: str) -> dict[str, Any]:
    """What this Airflow makes of a folder of DAG files."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
    environment = {**kept, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", **more}
    subprocess.run([programs / "airflow", "db", "migrate"], env=environment, capture_output=True, check=True)
    done = subprocess.run(
        [programs / "python", "-c", IMPORT, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return dict(json.loads(line.removeprefix("RESULT ")))


def require_all(result: dict[str, Any], line: str) -> None:
    """Every DAG was imported, and nothing of ours warned."""
    assert result["errors"] == {}
    assert result["dags"] == DAGS
    expected = tuple(OF_THE_LINE.get(line, ()))
    assert [warning for warning in result["warnings"] if not warning.startswith(expected)] == []


@pytest.mark.parametrize("line", [name for name in LINES if name != "3.3"])
def test_every_dag_is_imported_by_an_older_airflow(line: str, tmp_path: Path) -> None:
    """With the providers that we require, and without what only tasks import; 3.3 is that of every other test."""
    programs = LINES[line].install(REPOSITORY / ".state" / f"airflow-{line}", *providers(), no_deps=True)
    require_all(imported(programs, REPOSITORY / "dags", tmp_path, PYTHONPATH=str(REPOSITORY / "plugins")), line)


def test_the_readme_names_what_is_tested() -> None:
    rows = [row for row in (REPOSITORY / "README.md").read_text().splitlines() if "`AREA=airflow`" in row]
    cells = {cell.strip() for row in rows for column in row.split("|")[1:3] for cell in column.split(",")}
    assert {*(line.release for line in LINES.values()), *PYTHONS} <= cells


@pytest.fixture(scope="module", params=LINES)
def line(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def programs(line: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of an environment into which the package was installed."""
    folder = tmp_path_factory.mktemp(f"airflow-{line}")
    return LINES[line].install(folder / "venv", f"{copy_source(folder / 'source')}[spark]")


@pytest.fixture(scope="module")
def airflow(
    programs: Path,
    airflow_with: Callable[..., AbstractContextManager[AirflowStack]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AirflowStack]:
    """Its DAGs are those of the package, in their folder beside the jobs, and examples of the provider."""
    own, folder = dags_of(programs), tmp_path_factory.mktemp("dags")
    for name in ("dags", "spark_jobs"):
        shutil.copytree(own.parent / name, folder / name)
    for name in EXAMPLES:
        shutil.copy(REPOSITORY / "tests" / "system" / f"{name}.py", folder / "dags")
    settings = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": "/nonexistent",
        "PYTHONPATH": "",
    }
    with airflow_with(settings, programs=programs) as stack:
        yield stack


def dags_of(programs: Path) -> Path:
    done = subprocess.run([programs / "pulsar-fleet", "airflow", "dags"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.mark.long
def test_the_installed_package_is_complete(line: str, programs: Path, tmp_path: Path) -> None:
    require_complete(line, programs, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("python", PYTHONS)
def test_the_package_is_complete_with_a_newer_python(python: str, tmp_path: Path) -> None:
    newest = [*LINES][-1]
    packages = f"{copy_source(tmp_path / 'source')}[spark]"
    require_complete(
        newest, LINES[newest].install(tmp_path / "venv", packages, python=find_python(python)), tmp_path / "home"
    )


def require_complete(line: str, programs: Path, tmp_path: Path) -> None:
    """Every DAG is imported, and Airflow knows hook, message queue and plugin."""
    require_all(imported(programs, dags_of(programs), tmp_path), line)
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": ""}
    for words, said in (
        ("providers hooks", "pulsar_fleet.airflow.hooks.pulsar.PulsarHook"),
        ("providers queues", "pulsar_fleet.airflow.queues.pulsar.PulsarMessageQueueProvider"),
        ("plugins", "pulsar_fleet"),
    ):
        done = subprocess.run(
            [programs / "airflow", *words.split()], env=environment, capture_output=True, text=True, check=True
        )
        assert said in done.stdout


@pytest.mark.long
def test_a_namespace_is_migrated_wave_by_wave(
    airflow: AirflowStack,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    """The approval is a person's, the waits are deferred, and a task starts the run of the next wave."""
    names = [new_namespace(), new_namespace()]
    for name in names:
        asyncio.run(build_estate(blue, EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=10)))
    first = airflow.trigger(
        "migrate_namespaces", BLUE_TO_GREEN | {"namespaces": [*map(str, names)], "wave_namespaces": 1}
    )
    for run_id in (first, f"{first}__wave-2"):
        assert "from blue to green" in answer_wave(airflow, run_id, "Approve")["subject"]
        state = wait_for(lambda run_id=run_id: ended(airflow, "migrate_namespaces", run_id))
        failed = [task["task_id"] for task in airflow.tasks("migrate_namespaces", run_id) if task["state"] == "failed"]
        assert state == "success", "\n".join(airflow.log("migrate_namespaces", run_id, task) for task in failed)
        assert ": Approve by " in airflow.report("migrate_namespaces", run_id)

    ledger = Ledger.open(f"sqlite:///{airflow.folder}/pulsar-fleet/ledger.db")
    askers = [ledger.run(f"migrate_namespaces/{run_id}") for run_id in (first, f"{first}__wave-2")]
    (asked_by,) = {asker.requested_by for asker in askers if asker}
    assert asked_by, "the next wave is asked for by who asked for the first"
    assert "Airflow, as" not in asked_by

    async def topics() -> list[int]:
        async with AdminClient(green) as admin:
            return [len(await admin.topics(name)) for name in names]

    assert all(asyncio.run(topics()))


@pytest.mark.long
def test_policies_are_reconciled(
    airflow: AirflowStack,
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    name = new_namespace()
    asyncio.run(build_estate(blue, EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=1)))
    for admin_url in (blue.admin_url, green.admin_url):
        httpx.put(f"{admin_url}/admin/v2/namespaces/{name}", json={}, timeout=60)
    ttl = f"admin/v2/namespaces/{name}/messageTTL"
    httpx.post(f"{blue.admin_url}/{ttl}", json=4242, timeout=60).raise_for_status()
    conf = {"clusters": ["pulsar_blue", "pulsar_green"], "selection": [str(name)], "mode": "repair"}
    run_id, state = finish(airflow, "reconcile_policies", **conf)
    assert state == "success", airflow.log("reconcile_policies", run_id, "write_report")
    assert httpx.get(f"{green.admin_url}/{ttl}", timeout=60).json() == 4242


@pytest.mark.long
def test_operators_and_sensors_run(airflow: AirflowStack, blue: ClusterConnection) -> None:
    """Two operators, a sensor that waits in the triggerer, and one in a worker."""
    admin = f"{blue.admin_url}/admin/v2"
    httpx.put(f"{admin}/tenants/examples", json={"allowedClusters": ["blue"]}, timeout=60)
    httpx.put(f"{admin}/namespaces/examples/airflow", json={"replication_clusters": ["blue"]}, timeout=60)
    closing = f"{admin}/persistent/examples/airflow/closing"
    for path in ("", "/subscription/warehouse"):
        httpx.put(f"{closing}{path}", timeout=60).raise_for_status()
    httpx.post(f"{closing}/terminate", timeout=60).raise_for_status()
    url = f'{{"service_url": "{blue.service_url}"}}'
    airflow.put_connection("pulsar_default", conn_type="pulsar", host=blue.admin_url, extra=url)
    try:
        for dag in EXAMPLES:
            run_id, state = finish(airflow, dag)
            logs = [airflow.log(dag, run_id, task["task_id"]) for task in airflow.tasks(dag, run_id)]
            assert state == "success", "\n".join(logs)
    finally:
        httpx.delete(f"{admin}/namespaces/examples/airflow?force=true", timeout=60)


@pytest.mark.long
@pytest.mark.parametrize("dag", ["migrate_namespaces", "fail_back_namespaces", "onboard_cluster"])
def test_no_backfill_starts_what_a_person_starts(airflow: AirflowStack, dag: str) -> None:
    body = {"dag_id": dag, "from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-03T00:00:00Z"}
    answer = airflow.api.post("/api/v2/backfills", json=body)
    assert answer.is_client_error, answer.text
    assert "schedule" in answer.text


@pytest.mark.long
def test_the_pages_answer(airflow: AirflowStack) -> None:
    for page, text in (("", "Fleet"), ("matrix", "Fleet"), ("replicators", "Fleet"), ("audit", "UNCHANGED")):
        answer = airflow.api.get(f"/pulsar-fleet/{page}")
        assert (answer.status_code, text in answer.text) == (httpx.codes.OK, True), answer.text
