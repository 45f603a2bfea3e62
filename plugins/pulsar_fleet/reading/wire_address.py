"""Where one broker answers, and a socket to it: TCP or TLS."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Denied, Rejected

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
        if parts.scheme not in _PORTS or not parts.hostname:
            raise Rejected(f"The broker address {url!r} is not usable: it must be pulsar://host:port.")
        return cls(parts.hostname, parts.port or _PORTS[parts.scheme], parts.scheme == "pulsar+ssl")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{host}:{self.port}"


def open_socket(address: BrokerAddress, who: ClusterConnection, timeout_seconds: float) -> socket.socket:
    """Connect, with TLS where the address says so; host names in certificates are checked.

    :raises FleetError: `Denied` for a certificate that is not trusted; `Rejected` for TLS files that cannot be used.
    :raises OSError: nobody answers there.
    """
    plain = socket.create_connection((address.host, address.port), timeout_seconds)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.tls:
            return plain
        return _tls_context(who).wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise Denied(
            f"The certificate of {address} is not trusted: {error.verify_message}. Name its authority in the "
            f"extra tls_trust_file of {who.name!r}, and a host that the certificate is for.",
            cluster=who.name,
        ) from error
    except BaseException:
        plain.close()
        raise


def _tls_context(who: ClusterConnection) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=who.tls_trust_file)
        if who.tls_certificate_file:
            context.load_cert_chain(who.tls_certificate_file, who.tls_key_file)
    except OSError as error:
        raise Rejected(f"The TLS files of {who.name!r} cannot be used: {error}.") from error
    return context
