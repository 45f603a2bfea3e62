"""Real clusters for the tests: two, started once a worker, shared by all; every test makes namespaces of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support import full_estate

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox import Sandbox

REPOSITORY = Path(__file__).parents[1]
VERSION_VARIABLE = "PULSAR_FLEET_TEST_VERSION"
ATTACH_VARIABLE = "PULSAR_FLEET_TEST_SANDBOX"


def pytest_configure(config: pytest.Config) -> None:
    """Give Airflow a home of its own before anything imports it: it reads its configuration at import."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        # A shell starts background jobs without these; processes that tests interrupt would inherit that.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    home = Path(tempfile.mkdtemp(prefix="pulsar-fleet-airflow-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__DAGS_FOLDER=str(REPOSITORY / "dags"),
        AIRFLOW__CORE__PLUGINS_FOLDER=str(REPOSITORY / "plugins"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{home / 'airflow.db'}",
        PYSPARK_PYTHON=sys.executable,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders whose files take longest, so that no worker ends alone with one of them."""
    folders = ("e2e", "dags", "contract", "unit")
    items.sort(key=lambda item: folders.index(item.path.parent.name) if item.path.parent.name in folders else 0)


# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two clusters, `blue` and `green`, that do not know each other; an already running sandbox on request."""
    if running := os.environ.get(ATTACH_VARIABLE):
        yield Sandbox.attach(running)
        return
    version = os.environ.get(VERSION_VARIABLE, "4.2.4")
    with Sandbox.start(tmp_path_factory.mktemp("sandbox"), clusters=("blue", "green"), version=version) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def blue(clusters: Sandbox) -> ClusterConnection:
    """How to reach cluster blue."""
    return _connection(clusters, "blue")


@pytest.fixture(scope="session")
def green(clusters: Sandbox) -> ClusterConnection:
    """How to reach cluster green."""
    return _connection(clusters, "green")


@pytest.fixture
async def on_blue(blue: ClusterConnection) -> AsyncIterator[AdminClient]:
    """A client for blue's admin API."""
    async with AdminClient(blue) as admin:
        yield admin


@pytest.fixture
async def on_green(green: ClusterConnection) -> AsyncIterator[AdminClient]:
    """A client for green's admin API."""
    async with AdminClient(green) as admin:
        yield admin


@pytest.fixture
def new_namespace() -> Callable[[], NamespaceName]:
    """Names that nobody has used: a tenant of its own each time."""
    return lambda: NamespaceName(f"test-{uuid.uuid4().hex[:10]}", "orders")


@pytest.fixture(scope="session")
def make_namespace() -> Callable[[AdminClient, NamespaceName], Awaitable[None]]:
    """Create a tenant and a namespace without any policy."""
    return full_estate.make_namespace


@pytest.fixture(scope="session")
def make_estate() -> Callable[[AdminClient, NamespaceName], Awaitable[None]]:
    """Fill a new namespace: policies, two topics, schema history, topic policies, subscriptions."""
    return full_estate.make_estate


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger and an artefact store of the test's own, as the default ones."""
    monkeypatch.setenv("PULSAR_FLEET_LEDGER", f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.setenv("PULSAR_FLEET_ARTEFACTS", str(tmp_path / "artefacts"))
    return tmp_path


def _connection(clusters: Sandbox, name: str) -> ClusterConnection:
    cluster = clusters[name]
    return ClusterConnection(name=name, admin_url=cluster.admin_url, service_url=cluster.service_url)
