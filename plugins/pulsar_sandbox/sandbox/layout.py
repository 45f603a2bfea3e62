"""What a sandbox consists of: clusters, brokers and their ports. Values only; kept in `sandbox.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pulsar_fleet.cluster.errors import InvalidRequest

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLayout:
    """Where one broker listens. The TLS ports are None in a sandbox without security.

    :param version: Pulsar's, None for the cluster's; brokers differ during a rolling upgrade.
    """

    host: str
    service_port: int
    web_port: int
    service_port_tls: int | None = None
    web_port_tls: int | None = None
    version: str | None = None

    def ports(self) -> list[int]:
        """Every port of this broker."""
        numbers = (self.service_port, self.web_port, self.service_port_tls, self.web_port_tls)
        return [port for port in numbers if port is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """One cluster. With a ZooKeeper port, brokers are separate from the process of ZooKeeper and bookie; without one,
    a single process is the whole cluster.

    :param version: Pulsar's, of the process with the metadata and of each broker without one of its own.
    :param configuration_store: URL of the store that clusters share for tenants and namespaces; None for its own.
    """

    name: str
    version: str
    brokers: tuple[BrokerLayout, ...]
    bookie_port: int
    zookeeper_port: int | None = None
    configuration_store: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def ports(self) -> list[int]:
        """Every port of this cluster."""
        own = [self.bookie_port] + ([] if self.zookeeper_port is None else [self.zookeeper_port])
        return own + [port for broker in self.brokers for port in broker.ports()]

    @property
    def versions(self) -> tuple[str, ...]:
        """Pulsar version of every broker, in the order of their numbers."""
        return tuple(broker.version or self.version for broker in self.brokers)

    def with_version(self, broker: int, version: str) -> ClusterLayout:
        """Give one broker another version. When all have it, it is the cluster's: the next start uses it for all."""
        versions = [*self.versions]
        versions[broker] = version
        common = version if set(versions) == {version} else self.version
        brokers = (
            replace(layout, version=None if own == common else own)
            for layout, own in zip(self.brokers, versions, strict=True)
        )
        return replace(self, version=common, brokers=tuple(brokers))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLayout:
    """All clusters of a sandbox. `owner` is the process that it dies with, None for a detached one."""

    clusters: tuple[ClusterLayout, ...]
    secure: bool
    owner: int | None

    @property
    def versions(self) -> frozenset[str]:
        """Every Pulsar version that it runs."""
        return frozenset(version for cluster in self.clusters for version in (cluster.version, *cluster.versions))

    def to_json(self) -> str:
        """Render the text of `sandbox.json`."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> SandboxLayout:
        """Read the text of `sandbox.json`."""
        document = json.loads(text)
        if document.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The sandbox was written with schema_version {document.get('schema_version')!r}, this version reads "
                f"{SCHEMA_VERSION}; delete its folder and start a new one."
            )
        clusters = tuple(_read_cluster(cluster) for cluster in document["clusters"])
        return cls(clusters=clusters, secure=document["secure"], owner=document["owner"])


def _read_cluster(document: dict[str, Any]) -> ClusterLayout:
    brokers = tuple(BrokerLayout(**broker) for broker in document.pop("brokers"))
    return ClusterLayout(brokers=brokers, **document)


def lay_out_cluster(
    name: str,
    *,
    version: str,
    brokers: int,
    secure: bool,
    settings: Mapping[str, str],
    ports: Iterator[int],
    zookeeper: bool = False,
) -> ClusterLayout:
    """Give a cluster its ports.

    Several brokers get hosts of their own: isolation policies tell brokers apart by host only.

    :param zookeeper: for its metadata also with a single broker; several always need it.
    """
    hosts = ["localhost"] if brokers == 1 else [f"127.0.0.{number}" for number in range(1, brokers + 1)]
    places = tuple(
        BrokerLayout(
            host=host,
            service_port=next(ports),
            web_port=next(ports),
            service_port_tls=next(ports) if secure else None,
            web_port_tls=next(ports) if secure else None,
        )
        for host in hosts
    )
    return ClusterLayout(
        name=name,
        version=version,
        brokers=places,
        bookie_port=next(ports),
        zookeeper_port=next(ports) if zookeeper or brokers > 1 else None,
        settings=dict(settings),
    )
