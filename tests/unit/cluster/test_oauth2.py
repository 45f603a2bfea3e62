"""Tokens of OAuth 2.0: asked for once in their life, and never without saying why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path

import pytest
from tests.support.issuer import SECRET, Issuer, issuing

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.connection_fields import ConnectionFields
from pulsar_fleet.cluster.errors import InvalidRequest, Unauthenticated, Unavailable
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_fleet.messages.credentials import (
    Side,
    connection_from_environment,
    credentials_environment,
    credentials_in_environment,
)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    numbers = count(1)
    with issuing(lambda: f"token-{next(numbers)}") as token_issuer:
        yield token_issuer


def test_a_token_is_asked_for_once_in_its_life(issuer: Issuer, tmp_path: Path) -> None:
    oauth2 = OAuth2(key_file=issuer.key_file(tmp_path), audience="urn:pulsar", scope="fleet")
    assert [oauth2.access_token() for _ in range(3)] == ["token-1"] * 3
    (request,) = issuer.asked
    assert (request["audience"], request["scope"]) == ("urn:pulsar", "fleet")


def test_a_token_that_is_old_is_asked_for_anew(issuer: Issuer, tmp_path: Path) -> None:
    issuer.life_seconds = 0
    oauth2 = OAuth2(key_file=issuer.key_file(tmp_path))
    assert [oauth2.access_token() for _ in range(2)] == ["token-1", "token-2"]


def test_a_secret_that_the_issuer_does_not_know_is_said_without_showing_it(issuer: Issuer, tmp_path: Path) -> None:
    oauth2 = OAuth2(key_file=issuer.key_file(tmp_path, "wr0ng"))
    with pytest.raises(
        Unauthenticated, match=r"refuses a token to client 'fleet': Client authentication failed"
    ) as raised:
        oauth2.access_token()
    assert "wr0ng" not in str(raised.value).replace(oauth2.key_file, "")


def test_a_secret_may_be_in_the_connection_itself(issuer: Issuer) -> None:
    extra = {"oauth2_client_id": "fleet", "oauth2_issuer_url": issuer.url}
    fields = ConnectionFields(conn_id="blue", host="https://blue:8443", password=SECRET, extra=extra)
    cluster = fields.cluster()
    assert (cluster.token, cluster.read_token()) == (None, "token-1")
    assert SECRET not in repr(cluster)


def test_a_token_that_a_broker_refused_is_not_sent_again(issuer: Issuer, tmp_path: Path) -> None:
    oauth2 = OAuth2(key_file=issuer.key_file(tmp_path))
    assert oauth2.access_token() == "token-1"
    assert oauth2.access_token(refused="token-1") == "token-2"
    assert (oauth2.access_token(refused="token-1"), oauth2.cached_token()) == ("token-2", "token-2")


@pytest.mark.parametrize("text", ["", "[]", '{"client_id": "fleet"}', '{"client_id": "fleet", "client_secret": ""}'])
def test_a_key_file_that_cannot_be_used_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match=r"The OAuth 2\.0 key file .*client_secret"):
        OAuth2(key_file=str(path)).access_token()


def test_an_issuer_that_does_not_answer_may_answer_later(issuer: Issuer, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="did not return a token"):
        OAuth2(key_file=issuer.key_file(tmp_path), issuer_url="http://localhost:1").access_token()


def test_a_connection_names_key_file_and_issuer_in_its_extras() -> None:
    extra = {"oauth2_key_file": "/keys/fleet.json", "oauth2_issuer_url": "https://id.example", "oauth2_audience": ""}
    connection = ConnectionFields(conn_id="blue", host="http://blue:8080", extra=extra).cluster()
    assert connection.oauth2 == OAuth2(key_file="/keys/fleet.json", issuer_url="https://id.example")


def test_an_audience_without_a_key_is_refused() -> None:
    fields = ConnectionFields(conn_id="blue", host="http://blue:8080", extra={"oauth2_audience": "urn:pulsar"})
    with pytest.raises(InvalidRequest, match=r"'blue' asks for OAuth 2\.0 without a key"):
        fields.cluster()


def test_a_process_elsewhere_gets_where_the_key_lies_and_not_the_key(issuer: Issuer, tmp_path: Path) -> None:
    oauth2 = OAuth2(key_file=issuer.key_file(tmp_path, "k3y"), audience="urn:pulsar")
    connection = ClusterConnection(name="blue", admin_url="http://blue:8080", oauth2=oauth2)
    handed = credentials_environment(Side.SOURCE, connection)
    assert credentials_in_environment(handed) == handed
    assert "k3y" not in str(handed).replace(oauth2.key_file, "")
    received = connection_from_environment(
        Side.SOURCE, name="blue", admin_url="http://blue:8080", service_url=None, environment=handed
    )
    assert (received, asdict(received)["oauth2"]["audience"]) == (connection, "urn:pulsar")
