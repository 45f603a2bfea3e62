"""Real clusters for the tests: two, started once a worker, shared by all; every test makes namespaces of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support import full_estate
from tests.support.kinds import Kinds, StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import stored_redirect
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.versions import Redirect, release_of, version_numbers
from pulsar_sandbox import Sandbox
from pulsar_sandbox.sandbox.clusters import Cluster
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION
from pulsar_sandbox.sandbox.request import parse_versions

REPOSITORY = Path(__file__).parents[1]
TESTS = REPOSITORY / "tests"
VERSION_VARIABLE = "PULSAR_FLEET_TEST_VERSION"
ATTACH_VARIABLE = "PULSAR_FLEET_TEST_SANDBOX"
# What brokers do all the time, seldom: with the sandbox's settings, which are for shadow topics, each writes the last
# entry of every open ledger twice a second, and two hundred idle topics take three times the CPU time of none.
BROKERS = {
    "bookkeeperExplicitLacIntervalInMills": "5000",
    "managedLedgerCacheEvictionIntervalMs": "1000",
    # In the middle of a test it would hide policies of topics, where a broker is of Pulsar 3.0.
    "brokerServiceCompactionMonitorIntervalInSeconds": "3600",
    # Brokers of 5.0 make none without it, and most of what is tested of shadow topics is the same on every release.
    "enableShadowTopics": "true",
}
LONGEST = (
    "e2e/test_demo_estate",
    "contract/fleets/test_procedures",
    "contract/fleets/test_rolling_upgrade",
    "e2e/test_dead_airflow_runs",
    "e2e/test_scheduler",
    "dags/test_runs",
    "contract/policy_sync/test_event_times",
    "contract/policy_sync/test_events",
    "contract/policy_sync/test_joining_cluster",
    "contract/sandbox/test_sandbox",
    "contract/verification/test_kills",
    "dags/test_spark_cluster",
    "contract/verification/test_job",
    "contract/cluster/test_permissions",
    "contract/preflight/test_remedies",
    "contract/migration/test_remedies",
    "contract/migration/test_dead_runs",
    "contract/migration/test_demo_estate",
    "contract/policy_sync/test_conflicts",
    "contract/migration/test_faults",
    "contract/migration/test_gates",
    "contract/migration/test_failback",
    "contract/migration/test_generated_topics",
    "contract/migration/test_departed_consumer",
    "contract/policy_sync/test_reconciliation",
    "contract/sandbox/test_workload",
    "contract/policy_sync/test_reconciliation_rounds",
    "contract/verification/test_subscriptions",
    "contract/onboarding/test_canary",
    "e2e/test_message_queue",
    "contract/fleets/test_lasting_throttle",
    "contract/migration/test_incoming_replication",
    "contract/migration/test_repoint",
    "contract/replication/test_doctor_links",
    "contract/replication/test_doctor",
    "contract/migration/test_whole_cluster",
    "dags/test_repoint",
    "contract/read_only/test_two_brokers",
    "contract/read_only/test_brokers",
    "contract/cluster/test_shadow_guard",
    "contract/read_only/test_serve",
    "contract/read_only/test_forwarding",
    "dags/test_forwarding",
)
"""Files of more than a minute, the longest first."""
kinds = Kinds()


def pytest_configure(config: pytest.Config) -> None:
    """Give Airflow a home of its own before anything imports it: it reads its configuration at import."""
    config.pluginmanager.register(kinds)
    patch = pytest.MonkeyPatch()
    kinds.watch(patch)
    config.add_cleanup(patch.undo)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        # A shell starts background jobs without these; processes that tests interrupt would inherit that.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    home = Path(tempfile.mkdtemp(prefix="pulsar-fleet-airflow-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__DAGS_FOLDER=str(REPOSITORY / "dags"),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{home / 'airflow.db'}",
        PYSPARK_PYTHON=sys.executable,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest and end with unit tests, so that no worker ends alone with a long file."""

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(TESTS).with_suffix("").as_posix()
        return LONGEST.index(path) if path in LONGEST else len(LONGEST) + path.startswith("unit/")

    items.sort(key=rank)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what brokers of an older version do not do."""
    versions = parse_versions(os.environ.get(VERSION_VARIABLE, DEFAULT_VERSION))
    running = [versions] if isinstance(versions, str) else list(versions.values())
    for marker in item.iter_markers("needs_pulsar"):
        needed, why = marker.args
        if any(version_numbers(version) < version_numbers(needed) for version in running):
            pytest.skip(f"needs Pulsar {needed}: {why}")


# How long an example takes depends on what else the machine does.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def start_clusters() -> StartClusters:
    """Start clusters of the test's own, which makes it a fleet test."""
    return Sandbox.start


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two clusters, `blue` and `green`, that do not know each other; an already running sandbox on request."""
    if running := os.environ.get(ATTACH_VARIABLE):
        yield Sandbox.attach(running)
        return
    version, names = parse_versions(os.environ.get(VERSION_VARIABLE, DEFAULT_VERSION)), ("blue", "green")
    folder, settings = tmp_path_factory.mktemp("sandbox"), dict.fromkeys(names, BROKERS)
    with kinds.start_shared(folder, clusters=names, version=version, settings=settings) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster `blue` that replicates nothing: a broker that does may stop the links of shadow topics."""
    version = parse_versions(os.environ.get(VERSION_VARIABLE, DEFAULT_VERSION))
    version = version if isinstance(version, str) else version["blue"]
    folder, settings = tmp_path_factory.mktemp("alone"), {"blue": BROKERS}
    with kinds.start_shared(folder, clusters=("blue",), version=version, settings=settings) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster `wide` of two brokers on hosts of their own, with tokens, authorization, TLS and transactions."""
    # Brokers look every second for credentials that have expired.
    settings = {"wide": {"authenticationRefreshCheckSeconds": "1", "transactionCoordinatorEnabled": "true"}}
    folder = tmp_path_factory.mktemp("wide")
    with kinds.start_shared(folder, clusters=("wide",), brokers=2, secure=True, settings=settings) as sandbox:
        yield sandbox["wide"]


@pytest.fixture
async def on_alone(alone: Sandbox) -> AsyncIterator[AdminClient]:
    """A client for the admin API of the cluster that replicates nothing."""
    async with AdminClient(_connection(alone, "blue")) as admin:
        yield admin


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
async def redirect(
    on_blue: AdminClient, green: ClusterConnection
) -> AsyncIterator[Callable[[NamespaceName], Awaitable[None]]]:
    """Send the clients of a namespace from blue to green, until the test ends: migrations refuse beside such a flag."""
    if (release := release_of(await on_blue.version())) and Redirect.NAMESPACE not in release.redirects:
        pytest.skip(f"Pulsar {release.line} flags no namespace")
    stored, names = await stored_redirect(on_blue, "blue"), list[NamespaceName]()
    keys = ("serviceUrl", "serviceUrlTls"), ("brokerServiceUrl", "brokerServiceUrlTls")
    address = {key: url for url, pair in zip((green.admin_url, green.service_url), keys, strict=True) for key in pair}

    async def send(name: NamespaceName) -> None:
        names.append(name)
        await on_blue.post("/clusters/blue/migrate", address, migrated=False)
        await on_blue.post(f"/namespaces/{name.path}/migration", True)

    yield send
    for name in names:
        await on_blue.post(f"/namespaces/{name.path}/migration", False)
    await on_blue.post("/clusters/blue/migrate", (stored or {}).get("migratedClusterUrl"), migrated=False)


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


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    """Jobs that the test did not end are ended after it, so that none disturbs the next one."""
    with ExitStack() as stack:
        yield stack


def _connection(clusters: Sandbox, name: str) -> ClusterConnection:
    cluster = clusters[name]
    return ClusterConnection(name=name, admin_url=cluster.admin_url, service_url=cluster.service_url)
