"""Find out what a port speaks that does not answer like an admin API: TLS or not, HTTP or Pulsar's binary protocol."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

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
