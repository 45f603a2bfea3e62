"""A broker that refuses the TLS handshake is told at once, with what to add, and is not asked again."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PermissionDenied
from pulsar_sandbox.sandbox import security


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("keys") / "security"
    security.create(folder)
    return folder


@contextmanager
def port(keys: Path, *, newest: ssl.TLSVersion) -> Iterator[int]:
    """A port that lets in clients with a certificate of the authority only, and tells the others why, as brokers do."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=keys / "ca.cert.pem")
    context.load_cert_chain(keys / "broker.cert.pem", keys / "broker.key.pem")
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, newest

    class Clusters(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'["blue"]')

    class Encrypted(ThreadingHTTPServer):
        def finish_request(self, request: Any, client_address: Any) -> None:
            with suppress(OSError), context.wrap_socket(request, server_side=True) as encrypted:
                super().finish_request(encrypted, client_address)

    with Encrypted(("127.0.0.1", 0), Clusters) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield server.server_port
        server.shutdown()
        serving.join()


def reach(keys: Path, number: int, certificate: Path | None = None) -> ClusterConnection:
    files = {"tls_certificate_file": "broker.cert.pem", "tls_key_file": "broker.key.pem"} if certificate else {}
    own = {name: str((certificate or keys) / file) for name, file in files.items()}
    trust = str(keys / "ca.cert.pem")
    return ClusterConnection(name="blue", admin_url=f"https://127.0.0.1:{number}", tls_trust_file=trust, **own)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_missing_or_foreign_certificate_is_reported_at_once(
    keys: Path, tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    security.create(tmp_path / "foreign")
    with port(keys, newest=newest) as number:
        async with AdminClient(reach(keys, number, keys)) as admin:
            assert await admin.clusters() == ("blue",)
        for certificate in (None, tmp_path / "foreign"):
            began = time.monotonic()
            async with AdminClient(reach(keys, number, certificate)) as admin:
                with pytest.raises(PermissionDenied, match=r"^blue: https://127.0.0.1:\d+ ended the TLS handshake: "):
                    await admin.clusters()
            assert time.monotonic() - began < 5
