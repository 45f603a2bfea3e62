"""A port that is not an admin API: what it speaks instead is found at once, on real sockets."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_sandbox.sandbox import security

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found"
ERROR_FRAME = b"\x00\x00\x00\x0a\x00\x00\x00\x06\x08\x0d\x6a\x02\x08\x00"
"""What a broker answers to a CONNECT without credentials."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("keys") / "security"
    security.create(folder)
    return folder


@pytest.fixture(scope="module")
def tls(keys: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "broker.cert.pem", keys / "broker.key.pem")
    return context


def http(request: bytes) -> bytes:
    return NOT_FOUND if request.startswith(b"GET ") else b""


def binary(request: bytes) -> bytes:
    """As a broker: a frame that is too large closes the connection."""
    return ERROR_FRAME if request.startswith(b"\x00") else b""


@asynccontextmanager
async def port(speaks: Callable[[bytes], bytes], encrypted: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(speaks(await reader.read(1024)))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=encrypted)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def refusal(url: str, trust_file: Path | None = None) -> str:
    """The sentence of the first call, which may not wait for retries."""
    began = time.monotonic()
    connection = ClusterConnection(name="blue", admin_url=url, tls_trust_file=str(trust_file) if trust_file else None)
    async with AdminClient(connection) as admin:
        with pytest.raises(InvalidRequest) as caught:
            await admin.cluster_name()
    assert time.monotonic() - began < 10
    assert re.fullmatch(r"[^\n]+[^.\s]\.", str(caught.value))
    return str(caught.value)


async def test_https_on_a_port_without_tls() -> None:
    async with port(http) as number:
        text = await refusal(f"https://127.0.0.1:{number}")
    assert f"port {number} speaks HTTP without TLS: write http://127.0.0.1:{number}," in text


async def test_http_on_a_port_with_tls(tls: ssl.SSLContext) -> None:
    async with port(http, tls) as number:
        text = await refusal(f"http://127.0.0.1:{number}")
    assert f"port {number} speaks TLS: write https://127.0.0.1:{number}," in text


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_port_for_messages(scheme: str) -> None:
    async with port(binary) as number:
        text = await refusal(f"{scheme}://127.0.0.1:{number}")
    assert f"port {number} speaks Pulsar's binary protocol, which is for messages" in text
    assert "by default 8080" in text


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_port_for_messages_with_tls(tls: ssl.SSLContext, keys: Path, scheme: str) -> None:
    async with port(binary, tls) as number:
        text = await refusal(f"{scheme}://127.0.0.1:{number}", keys / "ca.cert.pem")
    assert "speaks Pulsar's binary protocol with TLS" in text
    assert "by default 8443" in text


async def test_another_web_server() -> None:
    async with port(http) as number:
        text = await refusal(f"http://127.0.0.1:{number}")
    assert "was answered with 404: check the admin URL of this connection" in text


async def test_a_path_that_the_cluster_does_not_serve() -> None:
    async with port(http) as number:
        text = await refusal(f"http://127.0.0.1:{number}/pulsar")
    assert "remove the path /pulsar from the admin URL" in text
