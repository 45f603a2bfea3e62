"""A sandbox: several Pulsar clusters in one folder, started and stopped together."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TypedDict, Unpack

from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_sandbox.sandbox import security
from pulsar_sandbox.sandbox.clusters import Cluster, PortTaken, Runtime
from pulsar_sandbox.sandbox.folders import locked
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, NEEDS_JAVA, Progress, jars_for, log_progress
from pulsar_sandbox.sandbox.java import MINIMUM, find_java
from pulsar_sandbox.sandbox.layout import ClusterLayout, SandboxLayout, lay_out_cluster
from pulsar_sandbox.sandbox.ports import free_ports
from pulsar_sandbox.sandbox.request import RESERVED, Request, Settings

STATE_FILE = "sandbox.json"
START_ATTEMPTS = 3


class Options(TypedDict, total=False):
    """The options of `Sandbox.start`, for those that pass them on."""

    clusters: Sequence[str]
    version: str | Mapping[str, str]
    brokers: int
    secure: bool
    shared_store: bool
    settings: Settings | None
    port_base: int | None
    progress: Progress


class Sandbox:
    """Clusters by name. Obtain one by `start`, `up` or `attach`.

    As a context manager, and by `close`, one that was started stops everything; an attached one leaves it running.
    """

    def __init__(self, *, folder: Path, layout: SandboxLayout, runtimes: Mapping[str, Runtime] | None = None) -> None:
        self.folder = folder
        self.layout = layout
        self._runtimes = runtimes or {}
        # A forked child inherits this object: it must not stop what its parent uses.
        self._owner = os.getpid() if runtimes is not None else None
        self._clusters = {cluster.name: self._cluster(cluster) for cluster in layout.clusters}

    @classmethod
    def start(
        cls,
        folder: Path | str,
        *,
        clusters: Sequence[str] = ("blue", "green"),
        version: str | Mapping[str, str] = DEFAULT_VERSION,
        brokers: int = 1,
        secure: bool = False,
        one_authority: bool = False,
        shared_store: bool = False,
        settings: Settings | None = None,
        port_base: int | None = None,
        progress: Progress = log_progress,
    ) -> Sandbox:
        """Start clusters that die with this process, whatever it dies of, and wait until every broker is healthy.

        On the folder of an earlier sandbox it brings its data back, on the same ports where they are free.

        :param folder: for configuration, logs, keys and data; created if missing.
        :param version: Pulsar's, or one per cluster name.
        :param secure: with TLS, tokens and authorization; each cluster has an authority and a token secret of its own.
        :param one_authority: with the same ones, as applications need that are redirected to another cluster.
        :param shared_store: the clusters have one configuration store, so the same tenants and namespaces.
        :param settings: broker configuration on top of the sandbox's, per cluster name.
        :param port_base: use this port and those that follow; without it, any free ones.
        :raises InvalidRequest: a name, version or setting that cannot be, or data of other clusters in the folder.
        :raises PreconditionFailed: no Java or Maven, a taken port, or a cluster that did not start (with the end of
            its log).
        """
        request = Request(
            clusters=clusters,
            version=version,
            brokers=brokers,
            secure=secure,
            shared_store=shared_store,
            settings=settings or {},
            port_base=port_base,
        )
        request.check()
        place = Path(folder).expanduser().absolute()
        with locked(place / "start.lock"):
            request.check_space(place)
            recorded = _recorded(place)
            if recorded is None:
                _check_no_strangers(place, clusters)
            else:
                _check_not_in_use(place, recorded)
                request.check_fits(str(place), recorded)
            versions = {*request.versions.values(), *(recorded.versions if recorded else ())}
            runtimes = {number: _runtime(number, progress) for number in versions}
            sandbox = cls(folder=place, layout=request.lay_out(recorded), runtimes=runtimes)
            if secure and one_authority:
                security.share(place / "security", clusters)
            # The others know the first cluster's ports, as those of their configuration store.
            sandbox._launch(progress, may_move=port_base is None and not shared_store)
        return sandbox

    @classmethod
    def up(cls, folder: Path | str, **options: Unpack[Options]) -> Sandbox:
        """Start clusters that outlive this process; the options are those of `start`. `down` stops them."""
        sandbox = cls.start(folder, **options)
        sandbox.release()
        return sandbox

    @classmethod
    def attach(cls, folder: Path | str) -> Sandbox:
        """Use a sandbox that another process started."""
        place = Path(folder).expanduser().absolute()
        recorded = _recorded(place)
        if recorded is None:
            raise NotFound(
                f"There is no sandbox in {str(folder)!r}; start one with: pulsar-fleet sandbox up --folder {folder}"
            )
        return cls(folder=place, layout=recorded)

    @classmethod
    def down(cls, folder: Path | str) -> None:
        """Stop whatever runs in the folder; the data stays. A second call does nothing."""
        cls.attach(folder)._stop()

    def __getitem__(self, name: str) -> Cluster:
        if name not in self._clusters:
            raise NotFound(f"The sandbox has no cluster {name!r}; it has {', '.join(self._clusters)}.")
        return self._clusters[name]

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self._clusters.values())

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether any process of the sandbox runs."""
        return any(process.guarded for cluster in self for process in cluster.processes)

    def close(self) -> None:
        """Stop everything that this process started and did not release. A second call does nothing."""
        if self._owner == os.getpid():
            self._stop()

    def release(self) -> None:
        """Let the clusters outlive this process."""
        for cluster in self:
            for process in cluster.processes:
                process.release()
        self.layout = replace(self.layout, owner=None)
        self._owner = None
        self._write_state()

    def upgrade(self, name: str, broker: int, version: str, *, progress: Progress = log_progress) -> None:
        """End one broker in good order, start it with another Pulsar version, and wait until it is healthy.

        The others go on, as in a rolling upgrade; data, ports and settings stay. Metadata and bookie follow at the next
        start of the sandbox after the last broker. A second call restarts the broker.

        :raises PreconditionFailed: another process owns the sandbox: the broker could not end with that process.
        """
        cluster = self[name]
        if self.layout.owner not in (None, os.getpid()):
            raise PreconditionFailed(
                f"Process {self.layout.owner} owns the sandbox in {str(self.folder)!r}; upgrade there, or detach it."
            )
        runtime = _runtime(version, progress)
        # Recorded first: a broker that runs may have written what the older version cannot read.
        cluster.layout = cluster.layout.with_version(broker, version)
        self.layout = replace(self.layout, clusters=tuple(each.layout for each in self))
        self._write_state()
        cluster.upgrade(broker, runtime, detached=self.layout.owner is None)

    def _stop(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Cluster.stop, self))
        for cluster in self:
            for process in cluster.processes:
                process.stop()

    def _launch(self, progress: Progress, *, may_move: bool) -> None:
        if self.layout.secure:
            for layout in self.layout.clusters:
                security.create(self.folder / "security" / layout.name)
        self._write_state()
        began = time.monotonic()
        abandoned = Event()
        progress(f"Starting {', '.join(self._clusters)}")
        shared = any(layout.configuration_store for layout in self.layout.clusters)
        # The first cluster has the store that the others need, and each joins the tenants that it finds there.
        with ThreadPoolExecutor(max_workers=1 if shared else None) as pool:
            starts = [pool.submit(self._launch_cluster, cluster, abandoned, may_move=may_move) for cluster in self]
            try:
                for start in starts:
                    start.result()
            except BaseException:
                abandoned.set()
                pool.shutdown(wait=True)
                self._stop()
                raise
        progress(f"{', '.join(self._clusters)} ready after {time.monotonic() - began:.0f} s")

    def _launch_cluster(self, cluster: Cluster, abandoned: Event, *, may_move: bool) -> None:
        attempts = 1 if cluster.has_data or not may_move else START_ATTEMPTS
        for remaining in reversed(range(attempts)):
            try:
                return cluster.launch(self._runtimes, abandoned)
            except PortTaken:
                if not remaining:
                    raise
                cluster = self._moved(cluster)

    def _moved(self, cluster: Cluster) -> Cluster:
        """Give other ports to a cluster without data, because another process took one before the start."""
        for process in cluster.processes:
            process.stop()
        avoid = {port for other in self.layout.clusters for port in other.ports()}
        moved = lay_out_cluster(
            cluster.name,
            version=cluster.version,
            brokers=len(cluster.layout.brokers),
            secure=self.layout.secure,
            settings=cluster.layout.settings,
            ports=free_ports(avoid=avoid),
        )
        others = (moved if other.name == cluster.name else other for other in self.layout.clusters)
        self.layout = replace(self.layout, clusters=tuple(others))
        self._clusters[cluster.name] = self._cluster(moved)
        self._write_state()
        return self._clusters[cluster.name]

    def _cluster(self, layout: ClusterLayout) -> Cluster:
        keys = self.folder / "security" / layout.name if self.layout.secure else None
        return Cluster(folder=self.folder / layout.name, layout=layout, security_folder=keys)

    def _write_state(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        written = self.folder / f"{STATE_FILE}.new"
        written.write_text(self.layout.to_json())
        written.replace(self.folder / STATE_FILE)


def _runtime(version: str, progress: Progress) -> Runtime:
    java = find_java(NEEDS_JAVA.get(version, MINIMUM))  # first: without it nothing is fetched
    return Runtime(java, jars_for(version, progress))


def _recorded(folder: Path) -> SandboxLayout | None:
    with suppress(FileNotFoundError):
        return SandboxLayout.from_json((folder / STATE_FILE).read_text())
    return None


def _check_not_in_use(folder: Path, recorded: SandboxLayout) -> None:
    if Sandbox(folder=folder, layout=recorded).running:
        by = "detached" if recorded.owner is None else f"of process {recorded.owner}"
        raise PreconditionFailed(
            f"A sandbox ({by}) runs in {str(folder)!r}; choose another folder, or stop it with: "
            f"pulsar-fleet sandbox down --folder {folder}"
        )


def _check_no_strangers(folder: Path, names: Sequence[str]) -> None:
    """Refuse to use folders that no sandbox made: a start begins with deleting them."""
    for name in (*names, *RESERVED):
        if (folder / name).exists():
            raise PreconditionFailed(
                f"Folder {str(folder)!r} has a {name!r} that no sandbox made; choose another folder."
            )
