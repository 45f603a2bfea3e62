"""The sandbox against itself: real clusters are started, used, crashed and stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pulsar
import pytest

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_sandbox import Cluster, Sandbox
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION
from pulsar_sandbox.sandbox.ports import free_ports, is_free

pytestmark = [pytest.mark.long, pytest.mark.fleet]  # Starts and kills clusters of its own.

TOPIC = "persistent://public/default/kept"
MEBIBYTE = 1024 * 1024
COMMAND = [sys.executable, "-m", "pulsar_sandbox.sandbox.cli"]
OWNER = """
import sys, time
from pulsar_sandbox import Sandbox
with Sandbox.start(sys.argv[1], clusters=("one",)):
    print("ready", flush=True)
    time.sleep(600)
"""


def eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def answer(cluster: Cluster, path: str, broker: int = 0) -> Json:
    return httpx.get(f"{cluster.admin_urls[broker]}/admin/v2/{path}", timeout=30).raise_for_status().json()


@contextmanager
def client(cluster: Cluster) -> Iterator[pulsar.Client]:
    connected = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield connected
    connected.close()


def publish(cluster: Cluster, text: str) -> None:
    with client(cluster) as connected:
        connected.create_producer(TOPIC).send(text.encode())


def stored(cluster: Cluster) -> list[str]:
    texts = []
    with client(cluster) as connected:
        reader = connected.create_reader(TOPIC, pulsar.MessageId.earliest)
        while reader.has_message_available():
            texts.append(reader.read_next(10_000).data().decode())
    return texts


def jvms_in(folder: Path) -> list[int]:
    """Process ids of all JVMs and guards that work in a folder, found without the sandbox's own files."""
    pids = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return pids


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two clusters of this file's own: tests crash them."""
    folder = tmp_path_factory.mktemp("pair")
    settings = {"green": {"clusterMigrationCheckDurationSeconds": "7"}}
    with Sandbox.start(folder, clusters=("blue", "green"), settings=settings) as sandbox:
        yield sandbox
        ports = [port for cluster in sandbox.layout.clusters for port in cluster.ports()]
    assert jvms_in(folder) == []
    assert all(map(is_free, ports))


@pytest.fixture
def fresh(pair: Sandbox) -> Cluster:
    """Cluster blue, running whatever the test before did to it."""
    if pair["blue"].pids == (None,):
        pair["blue"].restart()
    return pair["blue"]


def test_started_clusters_are_healthy_and_know_only_themselves(pair: Sandbox) -> None:
    assert [answer(cluster, "clusters") for cluster in pair] == [["blue"], ["green"]]


def test_a_cluster_stays_below_450_mib(pair: Sandbox) -> None:
    assert [cluster.name for cluster in pair if cluster.memory > 450 * MEBIBYTE] == []


def test_settings_reach_the_cluster_that_they_name_and_no_other(pair: Sandbox) -> None:
    key = "clusterMigrationCheckDurationSeconds"
    values = [answer(cluster, "brokers/configuration/runtime")[key] for cluster in pair]
    assert values == ["1", "7"]


def test_a_killed_broker_comes_back_with_its_data_through_another_process(fresh: Cluster) -> None:
    publish(fresh, "before the crash")
    fresh.kill()
    assert not fresh.is_healthy()
    other = "import sys; from pulsar_sandbox import Sandbox\nSandbox.attach(sys.argv[1])['blue'].restart()"
    subprocess.run([sys.executable, "-c", other, fresh.folder.parent], check=True)
    assert "before the crash" in stored(fresh)


def test_a_stopped_cluster_comes_back_with_its_data_at_the_same_place(fresh: Cluster) -> None:
    publish(fresh, "before the stop")
    fresh.stop()
    assert fresh.pids == (None,)
    fresh.start()
    assert "before the stop" in stored(fresh)


def test_an_attached_sandbox_is_left_running(pair: Sandbox, fresh: Cluster) -> None:
    with Sandbox.attach(pair.folder):
        pass
    assert fresh.is_healthy()


def test_a_sandbox_is_found_by_another_path(pair: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pair.folder)
    assert Sandbox.attach(tmp_path / "link").running


def test_a_folder_in_use_is_refused(pair: Sandbox) -> None:
    with pytest.raises(PreconditionFailed, match=f"of process {os.getpid()}\\) runs in .*choose another folder"):
        Sandbox.start(pair.folder)


def test_a_cluster_that_is_not_there_is_named(pair: Sandbox) -> None:
    with pytest.raises(NotFound, match="no cluster 'red'; it has blue, green"):
        pair["red"]


def test_a_broker_that_is_not_there_is_named(pair: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match="no broker 1; it has 1"):
        pair["blue"].kill(broker=1)


def test_a_plain_cluster_says_how_to_get_tokens(pair: Sandbox) -> None:
    with pytest.raises(NotFound, match="start the sandbox with secure=True"):
        pair["blue"].token("admin")


def test_a_folder_without_sandbox_cannot_be_attached(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="pulsar-fleet sandbox up"):
        Sandbox.attach(tmp_path)


def test_a_folder_with_somebody_elses_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "blue").mkdir()
    (tmp_path / "blue" / "precious").touch()
    with pytest.raises(PreconditionFailed, match="has a 'blue' that no sandbox made"):
        Sandbox.start(tmp_path)
    assert (tmp_path / "blue" / "precious").exists()


def test_a_kill_9_of_the_owner_leaves_no_jvm_and_the_data_stays(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        cluster = Sandbox.attach(tmp_path)["one"]
        publish(cluster, "before the owner died")
        owner.kill()
    assert eventually(lambda: jvms_in(tmp_path) == [])
    assert all(map(is_free, cluster.layout.ports()))
    with Sandbox.start(tmp_path, clusters=("one",)) as sandbox:
        assert sandbox["one"].layout.ports() == cluster.layout.ports()
        assert stored(sandbox["one"]) == ["before the owner died"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_start_that_is_cut_leaves_no_process(tmp_path: Path, ending: signal.Signals) -> None:
    command = [*COMMAND, "up", "--folder", tmp_path, "--clusters", "one"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        started = eventually(lambda: len(jvms_in(tmp_path)) >= 2, seconds=120)  # the JVM and its guard
        up.send_signal(ending if started else signal.SIGKILL)
    assert started
    assert eventually(lambda: jvms_in(tmp_path) == [])


def test_a_cluster_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    settings = {"one": {"managedLedgerDefaultEnsembleSize": "many"}}
    with pytest.raises(
        PreconditionFailed, match=r"of 'one' ended before it was ready. Its log .*pulsar\.log ends:\n(.+\n)+.*many"
    ):
        Sandbox.start(tmp_path, clusters=("one",), settings=settings)
    assert jvms_in(tmp_path) == []


def test_a_port_that_is_taken_during_the_start_is_replaced(tmp_path: Path) -> None:
    taken: list[socket.socket] = []

    def take_web_port(message: str) -> None:
        if message.startswith("Starting"):
            port = Sandbox.attach(tmp_path)["one"].layout.brokers[0].web_port
            taken.append(socket.create_server(("127.0.0.1", port)))

    with Sandbox.start(tmp_path, clusters=("one",), progress=take_web_port) as sandbox, taken[0] as thief:
        assert sandbox["one"].layout.brokers[0].web_port != thief.getsockname()[1]
        assert sandbox["one"].is_healthy()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A secure cluster, detached: started by a command that has ended, stopped by another."""
    folder = tmp_path_factory.mktemp("secure")
    up = [*COMMAND, "up", "--folder", folder, "--clusters", "safe", "--secure", "--detach"]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    yield Sandbox.attach(folder)
    subprocess.run([*COMMAND, "down", "--folder", folder], check=True, stdout=subprocess.DEVNULL)
    assert jvms_in(folder) == []


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("nobody", 401), ("admin", 200)])
def test_a_secure_cluster_knows_who_asks_over_tls(secure: Sandbox, role: str | None, status: int) -> None:
    safe = secure["safe"]
    trust = ssl.create_default_context(cafile=safe.trust_file)
    headers = {"Authorization": f"Bearer {safe.token(role)}"} if role else {}
    assert httpx.get(f"{safe.admin_url_tls}/admin/v2/brokers", headers=headers, verify=trust).status_code == status


def test_a_secure_cluster_takes_messages_over_tls(secure: Sandbox) -> None:
    safe = secure["safe"]
    connected = pulsar.Client(
        safe.service_url_tls,
        authentication=pulsar.AuthenticationToken(safe.token("admin")),
        tls_trust_certs_file_path=safe.trust_file,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    connected.create_producer(TOPIC).send(b"over TLS")
    connected.close()


def test_keys_and_tokens_are_for_their_owner_only(secure: Sandbox) -> None:
    assert {file.stat().st_mode & 0o077 for file in (secure.folder / "security" / "safe").iterdir()} == {0}


def test_a_role_that_is_not_there_is_named(secure: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match="no role 'root'; it has admin, broker"):
        secure["safe"].token("root")


def test_status_tells_a_program_what_runs(secure: Sandbox) -> None:
    shown = subprocess.run([*COMMAND, "status", "--folder", secure.folder, "--json"], check=True, capture_output=True)
    document = json.loads(shown.stdout)
    assert [
        (cluster["name"], [broker["state"] for broker in cluster["brokers"]]) for cluster in document["clusters"]
    ] == [("safe", ["healthy"])]


def test_the_command_line_answers_bad_input_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", next(free_ports()))) as server:
        port = server.getsockname()[1]
        refused = subprocess.run(
            [*COMMAND, "up", "--folder", tmp_path, "--port-base", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (refused.returncode, refused.stderr) == (
        1,
        f"Port {port} is taken; choose another port base than {port}, or leave it out.\n",
    )


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Sandbox.start(tmp_path_factory.mktemp("two"), clusters=("wide",), brokers=2) as sandbox:
        yield sandbox["wide"]


def test_each_of_two_brokers_lists_both(two_brokers: Cluster) -> None:
    expected = {url.removeprefix("http://") for url in two_brokers.admin_urls}
    assert [set(answer(two_brokers, "brokers", broker)) for broker in (0, 1)] == [expected, expected]


def test_one_of_two_brokers_gets_a_setting_of_its_own(two_brokers: Cluster) -> None:
    key = "clusterMigrationCheckDurationSeconds"
    two_brokers.kill(broker=1)
    assert (two_brokers.pids[0] is None, two_brokers.pids[1] is None) == (False, True)
    two_brokers.restart(broker=1, settings={key: "0"})
    values = [answer(two_brokers, "brokers/configuration/runtime", broker)[key] for broker in (0, 1)]
    assert values == ["1", "0"]


@pytest.mark.timeout(300)
def test_a_broker_is_upgraded_with_its_data_and_keeps_its_version(tmp_path: Path) -> None:
    with Sandbox.start(tmp_path, clusters=("wide",), version="4.0.7", brokers=2) as sandbox:
        wide = sandbox["wide"]
        publish(wide, "before the upgrade")
        with pytest.raises(PreconditionFailed, match=f"Process {os.getpid()} owns the sandbox"):
            upgraded_elsewhere(tmp_path)
        sandbox.upgrade("wide", 0, "4.2.4")
        assert versions(wide) == ["4.2.4", "4.0.7"]
        assert stored(wide) == ["before the upgrade"]
        wide.restart(0)
        assert versions(wide) == ["4.2.4", "4.0.7"]
    up = [*COMMAND, "up", "--folder", tmp_path, "--clusters", "wide", "--brokers", "2", "--version", "4.0.7"]
    subprocess.run([*up, "--detach"], check=True, stdout=subprocess.DEVNULL)
    wide = Sandbox.attach(tmp_path)["wide"]
    assert versions(wide) == ["4.2.4", "4.0.7"]
    upgraded_elsewhere(tmp_path)
    assert (wide.pids[1] is None, versions(wide), stored(wide)) == (False, ["4.2.4", "4.2.4"], ["before the upgrade"])
    assert Sandbox.attach(tmp_path)["wide"].version == "4.2.4"
    Sandbox.down(tmp_path)
    assert jvms_in(tmp_path) == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pulsar_5_starts_beside_an_older_version_and_keeps_its_data(tmp_path: Path) -> None:
    both = {"old": DEFAULT_VERSION, "new": "5.0.1"}
    with Sandbox.start(tmp_path, clusters=tuple(both), version=both) as sandbox:
        assert [versions(cluster) for cluster in sandbox] == [[DEFAULT_VERSION], ["5.0.1"]]
        publish(sandbox["new"], "before the restart")
    with Sandbox.start(tmp_path, clusters=tuple(both), version=both) as sandbox:
        assert stored(sandbox["new"]) == ["before the restart"]


def versions(cluster: Cluster) -> list[str]:
    return [
        httpx.get(f"{url}/admin/v2/brokers/version", timeout=30).raise_for_status().text for url in cluster.admin_urls
    ]


def upgraded_elsewhere(folder: Path) -> None:
    """Upgrade broker 1 in a process that ends; its refusal is raised here."""
    upgrade = "import sys; from pulsar_sandbox import Sandbox\nSandbox.attach(sys.argv[1]).upgrade('wide', 1, '4.2.4')"
    ended = subprocess.run([sys.executable, "-c", upgrade, folder], capture_output=True, text=True)
    if ended.returncode:
        raise PreconditionFailed(ended.stderr.splitlines()[-1])
