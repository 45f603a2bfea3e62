"""One running cluster: its addresses, what may be done to its processes, and whether a broker is ready."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import httpx

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_sandbox.sandbox import configuration, security
from pulsar_sandbox.sandbox.guarded import GuardedProcess
from pulsar_sandbox.sandbox.java import Java
from pulsar_sandbox.sandbox.layout import BrokerLayout, ClusterLayout
from pulsar_sandbox.sandbox.ports import answers

READY_SECONDS = 180.0
POLL_SECONDS = 0.2


class _Ended(PreconditionFailed):
    """A process ended before it was ready."""


class PortTaken(PreconditionFailed):
    """Another process took a port between our choice and the start."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What starts a JVM of one Pulsar version."""

    java: Java
    jars: Path


class Cluster:
    """A Pulsar cluster of the sandbox. Every method works from any process that attached to the sandbox.

    :param folder: contains the processes' folders: configuration, log and data.
    :param layout: its ports.
    :param security_folder: keys and tokens, None without security.
    """

    def __init__(self, *, folder: Path, layout: ClusterLayout, security_folder: Path | None) -> None:
        self.folder = folder
        self.layout = layout
        self._security = security_folder
        self._mark = folder / "was-ready"
        self._brokers = tuple(GuardedProcess(folder / f"broker-{index}") for index in range(len(layout.brokers)))
        self._store = None if layout.zookeeper_port is None else GuardedProcess(folder / "metadata")

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, {self.admin_url!r}, {self.service_url!r})"

    @property
    def name(self) -> str:
        """The name that the cluster has for itself."""
        return self.layout.name

    @property
    def version(self) -> str:
        """Pulsar version of every broker; during a rolling upgrade, of those that are not upgraded yet."""
        return self.layout.version

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """Admin URL of every broker, in the order of their numbers."""
        return tuple(f"http://{broker.host}:{broker.web_port}" for broker in self.layout.brokers)

    @property
    def admin_url(self) -> str:
        """Admin URL of broker 0."""
        return self.admin_urls[0]

    @property
    def service_url(self) -> str:
        """Service URL that names every broker."""
        return "pulsar://" + ",".join(f"{broker.host}:{broker.service_port}" for broker in self.layout.brokers)

    @property
    def admin_urls_tls(self) -> tuple[str, ...]:
        """Admin URL of every broker over TLS; only a secure sandbox has them."""
        self._secured()
        return tuple(f"https://{broker.host}:{broker.web_port_tls}" for broker in self.layout.brokers)

    @property
    def admin_url_tls(self) -> str:
        """Admin URL of broker 0 over TLS; only a secure sandbox has one."""
        return self.admin_urls_tls[0]

    @property
    def service_url_tls(self) -> str:
        """Service URL over TLS that names every broker; only a secure sandbox has one."""
        self._secured()
        return "pulsar+ssl://" + ",".join(f"{broker.host}:{broker.service_port_tls}" for broker in self.layout.brokers)

    @property
    def trust_file(self) -> str:
        """Path of the authority's certificate; only a secure sandbox has one."""
        return str(self._secured() / "ca.cert.pem")

    def token(self, role: str = "admin") -> str:
        """Return the token of a role of `security.ROLES`; only a secure sandbox has tokens."""
        return security.token(self._secured(), role)

    @property
    def processes(self) -> tuple[GuardedProcess, ...]:
        """Every JVM, in the order in which they have to start."""
        return (*([] if self._store is None else [self._store]), *self._brokers)

    @property
    def pids(self) -> tuple[int | None, ...]:
        """Process id of every broker, None for one that does not run."""
        return tuple(broker.pid for broker in self._brokers)

    @property
    def memory(self) -> int:
        """Resident memory of all its JVMs, in bytes."""
        return sum(process.memory for process in self.processes)

    def is_healthy(self, broker: int = 0) -> bool:
        """Tell whether a broker takes and gives out a message of its own."""
        return is_healthy(self.admin_urls[self._number(broker)], self._admin_token())

    def kill(self, broker: int = 0) -> None:
        """End a broker with kill -9, as a crash would. A second call does nothing."""
        self._brokers[self._number(broker)].kill()

    def restart(self, broker: int = 0, *, settings: Mapping[str, str] | None = None) -> None:
        """Start a broker again, ending it first if it runs, and wait until it is healthy.

        :param settings: configuration on top of the cluster's, for this broker alone; without it nothing changes.
        """
        number = self._number(broker)
        process = self._brokers[number]
        process.end()
        if settings is not None:
            self._configure(process, self.layout.brokers[number], settings)
        process.start_again()
        self._wait_for_broker(number, Event())

    def upgrade(self, broker: int, runtime: Runtime, *, detached: bool) -> None:
        """Start a broker again with another command, which needs another guard; `Sandbox.upgrade` records the version.

        :param detached: whether it outlives this process.
        """
        number = self._number(broker)
        process = self._brokers[number]
        process.end()
        process.stop()
        process.start(self._command(process, runtime))
        if detached:
            process.release()
        self._wait_for_broker(number, Event())

    def stop(self) -> None:
        """End all its processes in good order; the data and the ports stay, and `start` brings it back."""
        for process in reversed(self.processes):
            process.end()

    def start(self) -> None:
        """Start what does not run, and wait until every broker is healthy."""
        self._start_all(lambda process: process.start_again(), Event())

    @property
    def has_data(self) -> bool:
        """Whether it was ready once; what a start left that was cut before that is of no use."""
        return self._mark.exists()

    def launch(self, runtimes: Mapping[str, Runtime], abandoned: Event) -> None:
        """Configure and start everything under guards of this process, and wait until every broker is healthy.

        :param runtimes: by Pulsar version.
        :param abandoned: set by another thread to end the wait early.
        """
        if not self.has_data:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._store is not None:
            self._configure(self._store, self.layout.brokers[0], {})
        for process, broker in zip(self._brokers, self.layout.brokers, strict=True):
            self._configure(process, broker, {})
        versions = dict(zip(self._brokers, self.layout.versions, strict=True))

        def start(process: GuardedProcess) -> None:
            process.start(self._command(process, runtimes[versions.get(process, self.version)]))

        self._start_all(start, abandoned)
        self._mark.touch()

    def _command(self, process: GuardedProcess, runtime: Runtime) -> list[str]:
        alone = self._store is None or process is self._store
        arguments = configuration.standalone_arguments(self.layout) if alone else configuration.broker_arguments()
        log = process.log.absolute()
        command = configuration.java_command(
            runtime.java.path, java_major=runtime.java.major, jars=runtime.jars, log=log, arguments=arguments
        )
        # Standalone keeps its metadata in RocksDB unless this says ZooKeeper.
        return ["env", "PULSAR_STANDALONE_USE_ZOOKEEPER=1", *command] if process is self._store else command

    def _configure(self, process: GuardedProcess, broker: BrokerLayout, settings: Mapping[str, str]) -> None:
        process.folder.mkdir(parents=True, exist_ok=True)
        settings_of_broker = configuration.broker_settings(self.layout, broker, self._security) | dict(settings)
        (process.folder / "broker.conf").write_text(configuration.render(settings_of_broker))

    def _start_all(self, start: Callable[[GuardedProcess], None], abandoned: Event) -> None:
        if self._store is not None:
            start(self._store)
            self._wait_for_store(self._store, abandoned)
        for broker in self._brokers:
            start(broker)
        for number in range(len(self._brokers)):
            self._wait_for_new_broker(number, start, abandoned)
        if self._store is not None:
            furnish(self.admin_url, self._admin_token(), self.name, self._document())
        self._wait(lambda: is_furnished(self.admin_url, self._admin_token()), self._brokers[0], abandoned)

    def _wait_for_store(self, store: GuardedProcess, abandoned: Event) -> None:
        ports = {self.layout.zookeeper_port, self.layout.bookie_port}
        self._wait(lambda: ports <= store.listening, store, abandoned)

    def _wait_for_new_broker(self, number: int, start: Callable[[GuardedProcess], None], abandoned: Event) -> None:
        try:
            self._wait_for_broker(number, abandoned)
        except _Ended:
            if len(self._brokers) == 1:
                raise
            # Of brokers that begin together on an empty store all create `pulsar/system`; one that is refused ends
            # (observed once with the extensible load manager).
            start(self._brokers[number])
            self._wait_for_broker(number, abandoned)

    def _wait_for_broker(self, number: int, abandoned: Event) -> None:
        process, port = self._brokers[number], self.layout.brokers[number].web_port
        # Check the port before the health: a foreign process may answer on a port that it took from us.
        self._wait(lambda: port in process.listening and self.is_healthy(number), process, abandoned)

    def _wait(self, holds: Callable[[], bool], process: GuardedProcess, abandoned: Event) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not holds():
            # Without its port a broker may hang instead of ending.
            if (port := self._stolen_port()) is not None:
                raise PortTaken(f"Another process listens on port {port}, which cluster {self.name!r} needs; stop it.")
            if process.pid is None:
                raise _Ended(str(self._failure(process, "ended before it was ready")))
            if time.monotonic() > deadline:
                raise self._failure(process, f"was not ready after {READY_SECONDS:g} s")
            if abandoned.wait(POLL_SECONDS):
                raise PreconditionFailed(f"The start of {self.name} was abandoned.")

    def _stolen_port(self) -> int | None:
        """Find a port of ours on which a foreign process listens."""
        ours = self._listening()
        foreign = [port for port in self.layout.ports() if port not in ours and answers(port)]
        # Check again: a process of ours may have begun to listen in between.
        return next(iter(set(foreign) - self._listening()), None) if foreign else None

    def _listening(self) -> set[int]:
        return set().union(*(process.listening for process in self.processes))

    def _failure(self, process: GuardedProcess, what: str) -> PreconditionFailed:
        return PreconditionFailed(
            f"Process {process.folder.name!r} of {self.name!r} {what}. "
            f"Its log {process.log} ends:\n{process.last_words()}"
        )

    def _document(self) -> dict[str, str]:
        plain = {"serviceUrl": self.admin_url, "brokerServiceUrl": self.service_url}
        if self._security is None:
            return plain
        return plain | {"serviceUrlTls": self.admin_url_tls, "brokerServiceUrlTls": self.service_url_tls}

    def _admin_token(self) -> str | None:
        return None if self._security is None else self.token("admin")

    def _secured(self) -> Path:
        if self._security is None:
            raise NotFound(f"Cluster {self.name!r} has no TLS and no tokens; start the sandbox with secure=True.")
        return self._security

    def _number(self, broker: int) -> int:
        if broker not in range(len(self._brokers)):
            raise InvalidRequest(
                f"Cluster {self.name!r} has no broker {broker!r}; it has {len(self._brokers)}, counted from 0."
            )
        return broker


ANSWER_SECONDS = 5.0


def _client(admin_url: str, token: str | None) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"{admin_url}/admin/v2/", headers=headers, timeout=ANSWER_SECONDS, trust_env=False)


def is_healthy(admin_url: str, token: str | None) -> bool:
    """Tell whether the broker takes and gives out a message of its own."""
    with _client(admin_url, token) as admin:
        try:
            return admin.get("brokers/health").text == "ok"
        except httpx.TransportError:
            return False


def is_furnished(admin_url: str, token: str | None) -> bool:
    """Tell whether the namespaces exist that a new cluster is given; a standalone creates them after it is healthy."""
    with _client(admin_url, token) as admin:
        try:
            return "pulsar/system" in admin.get("namespaces/pulsar").text
        except httpx.TransportError:
            return False


def furnish(admin_url: str, token: str | None, name: str, cluster: Mapping[str, str]) -> None:
    """Create what a standalone creates by itself: its own cluster document, and `public/default` and `pulsar/system`.

    What another cluster made in a shared store gets this cluster too, as Pulsar's own `initialize-cluster-metadata`
    does it. A second call changes nothing: what exists is answered with 409.
    """
    with _client(admin_url, token) as admin:
        admin.put(f"clusters/{name}", json=dict(cluster))
        for tenant, namespace in (("public", "public/default"), ("pulsar", "pulsar/system")):
            rights = {"adminRoles": ["admin"] if token else [], "allowedClusters": [name]}
            if admin.put(f"tenants/{tenant}", json=rights).status_code == httpx.codes.CONFLICT:
                allowed = admin.get(f"tenants/{tenant}").json()["allowedClusters"]
                if name not in allowed:
                    admin.post(f"tenants/{tenant}", json={**rights, "allowedClusters": [*allowed, name]})
            path = f"namespaces/{namespace}"
            if admin.put(path, json={"replication_clusters": [name]}).status_code == httpx.codes.CONFLICT:
                listed = admin.get(f"{path}/replication").json()
                if name not in listed:
                    admin.post(f"{path}/replication", json=[*listed, name])
