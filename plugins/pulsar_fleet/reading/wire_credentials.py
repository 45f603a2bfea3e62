"""Who we are to a broker, and whom we trust: what a connection brings into the binary protocol."""

from __future__ import annotations

import ssl

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Rejected


def credentials_of(who: ClusterConnection) -> tuple[str | None, bytes | None]:
    """Method and credentials to show, read at each use; a certificate is shown by TLS itself. **Holds secrets.**"""
    if who.tls_certificate_file:
        return "tls", None
    token = who.read_token()
    return ("token", token.encode()) if token else (None, None)


def tls_context(who: ClusterConnection) -> ssl.SSLContext:
    """What TLS checks and shows: the host's name always; files that cannot be used are `Rejected`."""
    try:
        context = ssl.create_default_context(cafile=who.tls_trust_file)
        if who.tls_certificate_file:
            context.load_cert_chain(who.tls_certificate_file, who.tls_key_file)
    except OSError as error:
        raise Rejected(f"The TLS files of {who.name!r} cannot be used: {error}.") from error
    return context
