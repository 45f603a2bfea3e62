"""Addresses of brokers from service URLs and lookups, and the credentials, TLS and errors of connections to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import (
    Conflict,
    FleetError,
    InvalidRequest,
    NotAllowed,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of one broker."""

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
            raise InvalidRequest(f"The broker address {url!r} is not usable: it must be pulsar://host:port.")
        return cls(parts.hostname, port, parts.scheme == "pulsar+ssl")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{host}:{self.port}"


def service_addresses(url: str) -> list[BrokerAddress]:
    """The addresses of a service URL, which may have several hosts: `pulsar://blue-1:6650,blue-2:6650`."""
    scheme, _, hosts = url.partition("://")
    return [BrokerAddress.parse(f"{scheme}://{host}") for host in hosts.rstrip("/").split(",")]


def credentials_of(cluster: ClusterConnection) -> tuple[str | None, bytes | None]:
    """Authentication method and data, read at each use; TLS itself presents a certificate. **Holds secrets.**

    A connection may have both: then the token names the role, and the certificate opens the connection.
    """
    if token := cluster.read_token():
        return "token", token.encode()
    if cluster.user:
        return "basic", f"{cluster.user}:{cluster.password}".encode()
    return ("tls", None) if cluster.tls_certificate_file else (None, None)


_BY_CODE: dict[int, tuple[type[FleetError], str]] = {
    api.AUTHENTICATION: (Unauthenticated, "cannot be read, because our credentials are not accepted"),
    api.AUTHORIZATION: (NotAllowed, "may not be read by this role: grant it consume"),
    api.TOPIC_NOT_FOUND: (NotFound, "does not exist"),
    api.TOPIC_TERMINATED: (Conflict, "is terminated or was migrated"),
}


_BY_POLICY: dict[str, str] = {
    "sub type!": "its subscriptionTypesEnabled does not permit this type of subscription: permit it until all is read",
    "maximum number of subscriptions": "its maxSubscriptionsPerTopic is reached: raise it until all is read",
    "Topic reached max consumers": "its maxConsumersPerTopic is reached: raise it until all is read",
}
"""Part of the broker's message → the policy that refuses a subscription, and what to do: a retry is refused too."""


def refused(code: int, message: bytes, about: str, *, cluster: str, address: str) -> FleetError:
    """The error for a broker's code and message; an unknown code is `Unavailable`."""
    raised, reason = _BY_CODE.get(code, (Unavailable, "could not be read"))
    if policy := next((text for part, text in _BY_POLICY.items() if part.encode() in message), ""):
        raised, reason = InvalidRequest, f"cannot be read, because {policy}. It was refused"
    detail = " ".join(message.decode(errors="replace").split())[:300]
    return raised(f"{about} {reason} on {cluster} ({address}): {detail}.", cluster=cluster)
