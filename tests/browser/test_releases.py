"""The package in a fresh Airflow of each line: it lists the provider, form and *Test* work, and nothing remains.

It installs Airflow from the package index, and takes minutes.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.support.airflow_lines import LINES, REPOSITORY, copy_source
from tests.support.chromium import browser

from pulsar_fleet.airflow.connection_form import FIELDS
from pulsar_sandbox import Cluster, Sandbox
from pulsar_sandbox.demo.stack import AirflowStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.fleet]

log = logging.getLogger(__name__)
RELEASES = tuple(LINES)
MOST_SECONDS = 0.5
OURS = ("pulsar_fleet", "pulsar_sandbox", "pulsar-fleet")
Command = Callable[..., str]


@pytest.fixture(scope="module", params=RELEASES)
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of a fresh environment: a release of Airflow, and this package installed into it."""
    folder = tmp_path_factory.mktemp(f"airflow-{request.param}")
    return LINES[request.param].install(folder / "venv", str(copy_source(folder / "source")))


def install(programs: Path, *packages: str) -> None:
    """Install packages into the environment of these programs."""
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "-q", "--no-cache"]
    subprocess.run([*uv, "--python", str(programs / "python"), *packages], check=True)


@pytest.fixture(scope="module")
def command(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs a command of that environment; returns what it printed."""
    home = tmp_path_factory.mktemp("home")
    settings = {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}

    def run(name: str, *words: str, **more: str) -> str:
        environment = {**kept, **settings, **more}
        done = subprocess.run(
            [str(programs / name), *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Failed to import" not in done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Sandbox.start(tmp_path_factory.mktemp("sandbox"), clusters=("blue",)) as sandbox:
        yield sandbox["blue"]


@pytest.fixture
def page(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The list of connections of an Airflow of that release."""
    before = dict(os.environ)
    empty = tmp_path_factory.mktemp("empty")
    del os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    settings = {
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__CORE__DAGS_FOLDER": str(empty),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(empty),
    }
    stack = AirflowStack.launch(tmp_path_factory.mktemp("airflow"), settings=settings, programs=programs)
    try:
        stack.wait_ready()
        with browser() as running:
            opened = running.new_page(viewport={"width": 1400, "height": 1600})
            # Airflow 3.1 forgets the page that was asked for when it logs in.
            opened.goto(stack.url)
            opened.get_by_role("button", name="Admin").wait_for()
            opened.goto(f"{stack.url}/connections")
            yield opened
    finally:
        stack.stop()
        os.environ.clear()
        os.environ.update(before)


def test_airflow_lists_the_provider_and_reports_no_error(command: Command) -> None:
    hooks = [line for line in command("airflow", "providers", "hooks").splitlines() if line.startswith("pulsar ")]
    assert [" | ".join(map(str.strip, line.split("|")[1:3])) for line in hooks] == [
        "pulsar_fleet.airflow.hooks.pulsar.PulsarHook | pulsar_conn_id"
    ]
    assert "pulsar_fleet.airflow.queues.pulsar.PulsarMessageQueueProvider" in command("airflow", "providers", "queues")
    command("airflow", "db", "migrate")
    assert "pulsar_fleet" in command("airflow", "plugins")


def test_the_dags_and_their_jobs_are_installed_and_found(programs: Path, command: Command) -> None:
    folder = Path(command("pulsar-fleet", "airflow", "dags").strip())
    assert folder.is_relative_to(programs.parent)
    for name, here in (("dags", folder), ("spark_jobs", folder.parent / "spark_jobs")):
        assert {file.name for file in here.glob("*.py")} == {file.name for file in (REPOSITORY / name).glob("*.py")}


PARSE = """
import json, os, sys, time
from airflow.dag_processing.dagbag import DagBag

def parse(file):
    began = time.process_time()
    bag = DagBag(dag_folder=file, bundle_path=os.path.dirname(file), bundle_name="tests")
    assert bag.import_errors == {}, bag.import_errors
    return sorted(bag.dags), time.process_time() - began

parse(sys.argv[1])
for file in sys.argv[2:]:
    if not os.fork():
        print("PARSED " + json.dumps(parse(file)), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.parametrize("programs", RELEASES[-1:], indirect=True)
def test_each_dag_of_the_wheel_is_parsed_in_half_a_second(programs: Path, command: Command, tmp_path: Path) -> None:
    """CPU time in a process of its own for each file, forked from one that has parsed a DAG, as the DAG processor does.

    The procedures need `[spark]`. The first round compiles what is imported.
    """
    install(programs, f"{programs.parents[1] / 'source'}[spark]")
    command("airflow", "db", "migrate")
    (tmp_path / "empty.py").write_text("from airflow.sdk import DAG\nDAG('empty', schedule=None)\n")
    files = sorted(Path(command("pulsar-fleet", "airflow", "dags").strip()).glob("*.py"))
    for _ in range(2):
        printed = command("python", "-c", PARSE, str(tmp_path / "empty.py"), *map(str, files))
    parsed = [json.loads(line.removeprefix("PARSED ")) for line in printed.splitlines() if line.startswith("PARSED ")]
    assert [dags for dags, _ in parsed] == [[file.stem] for file in files]
    seconds = {dag: round(figure, 3) for (dag,), figure in parsed}
    log.info("seconds of CPU time by DAG: %s", seconds)
    assert {name: figure for name, figure in seconds.items() if figure > MOST_SECONDS} == {}


def test_a_connection_is_entered_and_tested_in_the_browser(page: Page, cluster: Cluster) -> None:
    page.get_by_role("button", name="Add Connection").first.click()
    form = page.get_by_role("dialog")
    form.get_by_role("combobox").first.click()
    page.keyboard.type("Pulsar")
    page.keyboard.press("Enter")
    form.locator("[name=connection_id]").fill("pulsar_form")
    # Airflow 3.3 tests a stored connection only if the port has its own field.
    host, _, port = cluster.admin_url.rpartition(":")
    form.locator("[name=host]").fill(host)
    form.locator("[name=port]").fill(port)
    form.get_by_role("button", name="Extra Fields", exact=True).click()
    for field in FIELDS.values():
        expect(form).to_contain_text(field.label)
    form.locator("#element_service_url").fill(cluster.service_url)
    form.locator("#element_service_url").blur()
    form.get_by_role("button", name="Save").click()
    expect(form).to_be_hidden()
    assert answer_of_the_button(page) == {
        "status": True,
        "message": f"Cluster 'blue', Pulsar {cluster.version}, 1 broker; messages through {cluster.service_url}.",
    }


def answer_of_the_button(page: Page) -> dict[str, object]:
    """What the button *Test Connection* of the only connection gets as its answer."""
    with page.expect_response(lambda response: response.url.endswith("/connections/test"), timeout=60_000) as answer:
        page.get_by_role("button", name="Test Connection").click()
    return dict(answer.value.json())


def test_uninstalling_leaves_nothing(command: Command, programs: Path) -> None:
    command("python", "-m", "pip", "uninstall", "-y", "pulsar-fleet")
    remaining = [path for path in programs.parent.rglob("*") if path.name.startswith(OURS)]
    assert remaining == []
    assert "pulsar" not in command("airflow", "providers", "hooks")
