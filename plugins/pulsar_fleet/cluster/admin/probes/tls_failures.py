"""Why a TLS handshake failed: a certificate that we do not trust, or one of ours that the broker does not accept."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PermissionDenied
from pulsar_fleet.cluster.tls import tls_context

_SECONDS = 1.0


def untrusted(connection: ClusterConnection, origin: str, error: Exception) -> PermissionDenied | None:
    """The error for a certificate of a broker that we do not trust; None for any other failure of a call."""
    if not isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return None
    return PermissionDenied(
        f"{connection.name}: the certificate of {origin} is not trusted: {error}. "
        'Name its authority in the connection ("tls_trust_file").',
        cluster=connection.name,
    )


async def refused(connection: ClusterConnection, origin: str) -> PermissionDenied | None:
    """The error for a broker that answers our handshake with an alert; None if it does not, within 2 s.

    HTTP libraries write their request before they read that alert, and then know of a lost connection only.
    """
    if alert := await _alert(connection, origin):
        has = bool(connection.tls_certificate_file)
        sent = "It does not accept our certificate" if has else "This connection names no certificate"
        return PermissionDenied(
            f"{connection.name}: {origin} ended the TLS handshake: {alert}. {sent}: name one that the broker "
            'accepts ("tls_certificate_file" and "tls_key_file" of the connection), or a port that requires none.',
            cluster=connection.name,
        )
    return None


async def _alert(connection: ClusterConnection, origin: str) -> str:
    parts = urlsplit(origin)
    writer = None
    try:
        async with asyncio.timeout(2 * _SECONDS):
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=tls_context(connection)
            )
            # The alert of TLS 1.3 comes after our handshake has ended; a broker that is content waits for a request.
            async with asyncio.timeout(_SECONDS):
                await reader.read(1)
    except ssl.SSLError as error:
        reason = (error.reason or "").replace("_", " ").lower()
        return reason if "alert" in reason else ""
    except (OSError, TimeoutError):
        return ""
    finally:
        if writer:
            writer.transport.abort()
    return ""
