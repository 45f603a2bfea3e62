"""Addresses of brokers, as service URLs and look-ups give them (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from pulsar_fleet.cluster.errors import Rejected

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where one broker answers."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `pulsar://host:port` or `pulsar+ssl://host:port`."""
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:
            port = None
        if parts.scheme not in _PORTS or not port or not parts.hostname:
            raise Rejected(f"The broker address {url!r} is not usable: it must be pulsar://host:port.")
        return cls(parts.hostname, port, parts.scheme == "pulsar+ssl")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{host}:{self.port}"


def service_addresses(url: str) -> list[BrokerAddress]:
    """The addresses of a service URL, which may name several: `pulsar://one:6650,two:6650`."""
    scheme, _, hosts = url.partition("://")
    return [BrokerAddress.parse(f"{scheme}://{host}") for host in hosts.rstrip("/").split(",")]
