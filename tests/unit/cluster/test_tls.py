"""The TLS context of a connection: a file that cannot be used is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection, tls_context
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.messages.protocol.connection import credentials_of
from pulsar_sandbox.sandbox import security


def connection(**fields: str) -> ClusterConnection:
    return ClusterConnection(
        name="blue", admin_url="https://blue:8443", service_url="pulsar+ssl://localhost:1", **fields
    )


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_a_trust_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    for use in (tls_context, open_client):
        with pytest.raises(InvalidRequest, match=r"'tls_trust_file' of 'blue' names .*ca\.pem, which cannot be used: "):
            use(connection(tls_trust_file=str(path)))


def test_a_certificate_without_its_key_is_named(tmp_path: Path) -> None:
    security.create(tmp_path)
    certificate = str(tmp_path / "broker.cert.pem")
    missing = connection(tls_certificate_file=certificate, tls_key_file=str(tmp_path / "none.pem"))
    with pytest.raises(InvalidRequest, match=r"'tls_certificate_file' of 'blue' names .*none\.pem, which cannot be"):
        tls_context(missing)


def test_a_token_names_the_role_where_a_connection_has_a_certificate_too() -> None:
    files = {"tls_certificate_file": "/pki/cert.pem", "tls_key_file": "/pki/key.pem"}
    assert credentials_of(connection(**files)) == ("tls", None)
    assert credentials_of(connection(token="jwt", **files)) == ("token", b"jwt")
    assert credentials_of(connection()) == (None, None)
