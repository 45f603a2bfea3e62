"""What answers at an address: the protocol that it speaks, why it ends a TLS handshake, and whether it answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from urllib.parse import urlsplit

from pulsar_fleet.cluster.connection import ClusterConnection, tls_context
from pulsar_fleet.cluster.errors import PermissionDenied
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.redaction import without_user_info

_SECONDS = 3.0
_HTTP = b"GET /admin/v2/clusters HTTP/1.0\r\n\r\n"
# A frame with BaseCommand{type: CONNECT, connect{client_version: "fleet", protocol_version: 21}}.
_COMMAND = b"\x08\x02\x12\x09\x0a\x05fleet\x20\x15"
_CONNECT = b"".join(size.to_bytes(4, "big") for size in (len(_COMMAND) + 4, len(_COMMAND))) + _COMMAND


async def wrong_protocol(url: str) -> str:
    """Why the port of an admin URL cannot answer, and the URL to use; empty if it may speak what the URL says.

    At most four connections, of up to 3 s each; nothing is changed. No credentials are sent.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = str(parts.hostname)
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    for encrypted in (None, unverified):
        if _is_frame(await _answer(host, port, _CONNECT, encrypted)):
            tls = " with TLS" if encrypted else ""
            return (
                f"port {port} speaks Pulsar's binary protocol{tls}, which is for messages: "
                f"name the port of the web service, by default {8443 if encrypted else 8080}"
            )
    if parts.scheme == "https" and await _speaks_http(host, port, None):
        return f"port {port} speaks HTTP without TLS: write http://{parts.netloc}, or name the port with TLS"
    if parts.scheme == "http" and await _speaks_http(host, port, unverified):
        return f"port {port} speaks TLS: write https://{parts.netloc}, or name the port without TLS"
    return ""


async def _speaks_http(host: str, port: int, encrypted: ssl.SSLContext | None) -> bool:
    return (await _answer(host, port, _HTTP, encrypted)).startswith(b"HTTP/")


async def _answer(host: str, port: int, request: bytes, encrypted: ssl.SSLContext | None) -> bytes:
    """The first bytes of the answer; empty if the port does not answer this."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=encrypted)
            try:
                writer.write(request)
                return await reader.read(64)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return b""


def _is_frame(answer: bytes) -> bool:
    """Whether it begins with a frame of one command: its size, the size of its command, the type of the command."""
    size, command = int.from_bytes(answer[:4], "big"), int.from_bytes(answer[4:8], "big")
    return len(answer) > 8 and size == command + 4 and answer[8:9] == b"\x08"


_ALERT_SECONDS = 1.0


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
        async with asyncio.timeout(2 * _ALERT_SECONDS):
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=tls_context(connection)
            )
            # The alert of TLS 1.3 comes after our handshake has ended; a broker that is content waits for a request.
            async with asyncio.timeout(_ALERT_SECONDS):
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


ADDRESSES = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls", "proxyServiceUrl")
_DEFAULT_PORTS = {"http": 80, "https": 443, "pulsar": 6650, "pulsar+ssl": 6651}


def addresses(data: JsonObject) -> tuple[str, ...]:
    """`scheme://host:port` of every address in a cluster's data; a URL may have several hosts, and a password."""
    urls: list[str] = []
    for key in ADDRESSES:
        urls += host_urls(str(without_user_info(data.get(key)) or ""))
    return tuple(sorted(set(urls)))


def host_urls(url: str) -> list[str]:
    """Of each host of a URL, which may have several with commas, a URL of its own; none of an empty one."""
    scheme, _, hosts = url.partition("://")
    return [f"{scheme}://{host.strip('/')}" for host in hosts.split(",") if host]


async def unreachable(urls: Iterable[str]) -> dict[str, str]:
    """Address → reason why it accepts no connection, for the unreachable ones."""
    addresses = sorted(set(urls))
    answers = await asyncio.gather(*(_try(url) for url in addresses))
    return {url: why for url, why in zip(addresses, answers, strict=True) if why}


async def _try(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, ValueError, TimeoutError) as error:
        return str(error) or f"no answer in {_SECONDS:.0f} s"
    writer.close()
    return ""
