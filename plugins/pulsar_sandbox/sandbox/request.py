"""The request for a sandbox: validate it, and make a layout with ports."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_sandbox.sandbox.configuration import DISK_THRESHOLD
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, SINGLE_BROKER, check_version
from pulsar_sandbox.sandbox.layout import ClusterLayout, SandboxLayout, lay_out_cluster
from pulsar_sandbox.sandbox.ports import free_ports, is_free, ports_from

MOST_BROKERS = 4
# Folders of the sandbox itself; a cluster's folder has the cluster's name.
RESERVED = ("security",)
Settings = Mapping[str, Mapping[str, str]]

_ROOM = 2 * 10**9
"""Bytes that the clusters can write before their bookies refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A requested sandbox; the parameters are those of `Sandbox.start`."""

    clusters: Sequence[str]
    version: str | Mapping[str, str] = DEFAULT_VERSION
    brokers: int = 1
    secure: bool = False
    shared_store: bool = False
    settings: Settings = field(default_factory=dict)
    port_base: int | None = None

    @property
    def versions(self) -> dict[str, str]:
        """Pulsar version of every cluster."""
        if isinstance(self.version, str):
            return dict.fromkeys(self.clusters, self.version)
        return {name: self.version.get(name, DEFAULT_VERSION) for name in self.clusters}

    def check(self) -> None:
        """Reject what cannot be, and refuse what this machine cannot do."""
        if not self.clusters or len(set(self.clusters)) != len(self.clusters):
            raise InvalidRequest(f"The clusters {list(self.clusters)!r} need at least one name, each once.")
        for name in self.clusters:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in RESERVED:
                raise InvalidRequest(f"{name!r} cannot name a cluster; use letters, digits, '-' and '_'.")
        if self.shared_store and len(self.clusters) == 1:
            raise InvalidRequest(f"{self.clusters[0]!r} shares its store with nobody: name two clusters or more.")
        if not 1 <= self.brokers <= MOST_BROKERS:
            raise InvalidRequest(f"A cluster of a sandbox has 1 to {MOST_BROKERS} brokers, not {self.brokers!r}.")
        if self.port_base is not None and self.port_base not in range(1, 65_536):
            raise InvalidRequest(f"The port base {self.port_base!r} is no port; use 1 to 65535, or leave it out.")
        self._check_names("version", [] if isinstance(self.version, str) else self.version)
        self._check_names("settings", self.settings)
        for version in self.versions.values():
            check_version(version)
            if version in SINGLE_BROKER and (self.brokers > 1 or self.shared_store):
                raise InvalidRequest(
                    f"Pulsar {version} has no starter of a ZooKeeper, which several brokers of a cluster and a shared "
                    f"store need: use 1 broker, not {self.brokers}, and a store for each cluster."
                )
        for number in range(2, self.brokers + 1):
            _check_host(f"127.0.0.{number}")

    @staticmethod
    def check_space(folder: Path) -> None:
        """Refuse a disk that is full or will be soon: a bookie above its threshold starts, and then refuses writes."""
        usage, most = shutil.disk_usage(folder), float(DISK_THRESHOLD)
        missing = usage.total * (1 - most) + _ROOM - usage.free
        if missing > 0:
            raise PreconditionFailed(
                f"The disk of {str(folder)!r} is {1 - usage.free / usage.total:.1%} full, and a bookie writes nothing "
                f"above {most:.0%}: free {missing / 1e9:.1f} GB or more, which leaves {_ROOM / 1e9:.0f} GB to write, "
                "or choose a folder on another disk."
            )

    def _check_names(self, what: str, names: Sequence[str] | Mapping[str, object]) -> None:
        for name in names:
            if name not in self.clusters:
                raise InvalidRequest(
                    f"{what} is given for {name!r}, which is none of the clusters {list(self.clusters)!r}."
                )

    def check_fits(self, folder: str, recorded: SandboxLayout) -> None:
        """Reject a folder with data of other clusters: another version or metadata store could not read it."""
        recorded_clusters = {
            cluster.name: (cluster.version, len(cluster.brokers), cluster.configuration_store is not None)
            for cluster in recorded.clusters
        }
        requested = {name: (version, self.brokers, self.shared_store) for name, version in self.versions.items()}
        if recorded_clusters != requested:
            raise InvalidRequest(
                f"Folder {folder!r} holds data of {_describe(recorded_clusters)}, not of {_describe(requested)}; "
                "ask for those, choose another folder, or delete it."
            )

    def lay_out(self, recorded: SandboxLayout | None) -> SandboxLayout:
        """Give every cluster its ports: those it had before where they are free, else new ones."""
        before = {} if recorded is None else {cluster.name: cluster for cluster in recorded.clusters}
        avoid = {port for cluster in before.values() for port in cluster.ports()}
        ports = free_ports(avoid=avoid) if self.port_base is None else ports_from(self.port_base)
        keep_ports = recorded is not None and recorded.secure == self.secure and self.port_base is None
        clusters = []
        for name, version in self.versions.items():
            own = dict(self.settings.get(name, {}))
            if keep_ports and all(map(is_free, before[name].ports())):
                clusters.append(replace(before[name], settings=own))
                continue
            fresh = lay_out_cluster(
                name,
                version=version,
                brokers=self.brokers,
                secure=self.secure,
                settings=own,
                ports=ports,
                zookeeper=self.shared_store,
            )
            clusters.append(_keep_data(fresh, before[name]) if name in before else fresh)
        if self.shared_store:
            # A folder of its own, as in production: the store of the first cluster itself is below the root.
            store = f"zk:127.0.0.1:{clusters[0].zookeeper_port}/configuration"
            clusters = [replace(cluster, configuration_store=store) for cluster in clusters]
        return SandboxLayout(clusters=tuple(clusters), secure=self.secure, owner=os.getpid())


def parse_versions(text: str) -> str | dict[str, str]:
    """Pulsar's version from `4.2.4`, or that of the named clusters from `blue=3.0.7,green=4.2.4`."""
    if "=" not in text:
        return text
    parts = (part.partition("=") for part in text.split(","))
    return {name.strip(): version.strip() for name, _, version in parts}


def _check_host(host: str) -> None:
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise PreconditionFailed(
                f"Several brokers need the address {host}, which this machine does not have; on macOS: "
                f"sudo ifconfig lo0 alias {host}"
            ) from error


def _keep_data(fresh: ClusterLayout, before: ClusterLayout) -> ClusterLayout:
    """Keep the bookie's port, under which alone it accepts its data, and the versions that wrote the data."""
    if not is_free(before.bookie_port):
        raise PreconditionFailed(
            f"Port {before.bookie_port} is taken, and the data of cluster {before.name!r} is bound to it; stop what "
            f"listens there, or choose another folder."
        )
    versions = (broker.version for broker in before.brokers)
    brokers = (replace(broker, version=version) for broker, version in zip(fresh.brokers, versions, strict=True))
    return replace(fresh, bookie_port=before.bookie_port, brokers=tuple(brokers))


def _describe(clusters: Mapping[str, tuple[str, int, bool]]) -> str:
    parts = (
        f"{name} {version} with {brokers} broker{'s'[: brokers > 1]}{' and a shared store' * shared}"
        for name, (version, brokers, shared) in clusters.items()
    )
    return ", ".join(parts)
