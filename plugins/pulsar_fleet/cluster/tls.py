"""The TLS context of a connection, for HTTP and for the binary protocol."""

from __future__ import annotations

import ssl

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest


def tls_context(connection: ClusterConnection) -> ssl.SSLContext:
    """The TLS context, which always checks the host name; `InvalidRequest` names a file that cannot be used."""
    trust, certificate, key = connection.tls_trust_file, connection.tls_certificate_file, connection.tls_key_file
    try:
        context = ssl.create_default_context(cafile=trust)
    except OSError as error:
        raise _unusable(connection, "tls_trust_file", str(trust), error) from error
    if certificate:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise _unusable(connection, "tls_certificate_file", f"{certificate} with {key}", error) from error
    return context


def _unusable(connection: ClusterConnection, extra: str, files: str, error: OSError) -> InvalidRequest:
    reason = error.strerror or str(error)
    return InvalidRequest(
        f"The extra {extra!r} of {connection.name!r} names {files}, which cannot be used: {reason}. Every worker needs "
        "it at this path, as PEM."
    )
