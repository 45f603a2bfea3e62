"""Airflow connections, read with and without Airflow: the same cluster either way."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from airflow.sdk import Connection

from pulsar_fleet.airflow.hooks.pulsar import from_airflow
from pulsar_fleet.cluster.connection_fields import ConnectionFields
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.messages.credentials import named_connection

EXTRA = {"token": "s3/cret+", "service_url": "pulsar://blue:6650", "timeout_seconds": 5, "max_connections": "4"}
WHOLE = urlencode({"__extra__": json.dumps(EXTRA)})


@pytest.mark.parametrize(
    "uri",
    [
        "pulsar://blue.example:8080",
        "pulsar://blue.example:8443/https",
        "pulsar://https://blue.example:8443",
        f"pulsar://{quote('https://blue.example:8443', safe='')}",
        "pulsar://me:p%40ss%2Fword@blue.example:8080",
        "http://blue.example:8080/?token=abc&max_connections=3",
        f"pulsar://https://:pw@blue.example:8443/?{WHOLE}",
    ],
)
def test_a_uri_means_what_it_means_to_airflow(uri: str) -> None:
    theirs = from_airflow(Connection.from_uri(uri, conn_id="blue"))
    assert ConnectionFields.parse("blue", uri).cluster() == theirs


@pytest.mark.parametrize("extra", [EXTRA, json.dumps(EXTRA), {}, ""])
def test_json_means_what_it_means_to_airflow(extra: object) -> None:
    text = json.dumps(
        {"conn_type": "pulsar", "host": "blue.example", "schema": "https", "port": "8443", "extra": extra}
    )
    theirs = from_airflow(Connection.from_json(text, conn_id="blue"))
    assert ConnectionFields.parse("blue", text).cluster() == theirs


@pytest.mark.parametrize(
    "text",
    [
        "{broken s3cret",
        '{"host": "h", "extra": "s3cret"}',
        '{"extra": ["s3cret"]}',
        "s3cret",
        "pulsar://s3cret:x@h:port",
        "pulsar://:s3cret@https://h",
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Connection 'blue' cannot be read") as caught:
        ConnectionFields.parse("blue", text)
    assert "s3cret" not in str(caught.value)


def test_a_connection_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(
        InvalidRequest,
        match=r"'pulsar_gren' does not exist. The environment defines: pulsar_green; the file of clusters: none\. Set",
    ):
        named_connection("pulsar_gren", {"AIRFLOW_CONN_PULSAR_GREEN": "pulsar://green:8080"})


def test_fields_never_show_their_secrets() -> None:
    assert "s3" not in repr(ConnectionFields(conn_id="blue", host="blue", password="s3", extra=EXTRA))


URLS = {"broker-0.internal:8080": "https://zero.example:8443", "broker-1.internal": "https://one.example"}


@pytest.mark.parametrize("value", [URLS, json.dumps(URLS)])
def test_urls_of_brokers_are_given_by_name(value: object) -> None:
    cluster = fields(broker_urls=value).cluster()
    assert cluster.broker_url("broker-0.internal:8080") == "https://zero.example:8443"
    assert cluster.broker_url("broker-0.internal:8443") == "https://zero.example:8443"
    assert cluster.broker_url("broker-1.internal:8080") == "https://one.example"
    assert cluster.broker_url("broker-2.internal:8080") is None
    redirect = "http://broker-1.internal:8080/admin/v2/persistent/acme/orders/events/stats?a=b"
    assert cluster.reachable(redirect) == "https://one.example/admin/v2/persistent/acme/orders/events/stats?a=b"
    assert cluster.reachable("http://elsewhere:8080/admin/v2/clusters") == "http://elsewhere:8080/admin/v2/clusters"
    assert [cluster.is_of_broker(host) for host in ("zero.example", "elsewhere")] == [True, False]
    assert cluster in {cluster}


def test_urls_of_brokers_are_given_by_a_template() -> None:
    cluster = fields(broker_urls="https://{host}.pulsar.example:8443").cluster()
    assert cluster.broker_url("broker-0:8080") == "https://broker-0.pulsar.example:8443"
    hosts = ("broker-0.pulsar.example", "broker-0.pulsarxexample", "elsewhere")
    assert [cluster.is_of_broker(host) for host in hosts] == [True, False, False]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("https://one.example:8443", "neither a JSON object of brokers and URLs nor a template with {host}"),
        (["https://one.example"], "neither a JSON object"),
        ({"broker-0": 8443}, "neither a JSON object"),
        ('{"broker-0": ', "neither a JSON object"),
        ({"broker-0": "one.example:8443"}, "An address in \"broker_urls\" of 'blue' is not usable"),
        ("https://me:pw@{host}:8443", "has credentials or a query"),
    ],
)
def test_urls_of_brokers_that_cannot_be_used_are_named(value: object, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        fields(broker_urls=value).cluster()
    assert words in str(error.value)


CLIENT_URLS = ("pulsar://pulsar.example:6650", "pulsar+ssl://pulsar.example:6651")


@pytest.mark.parametrize("value", [list(CLIENT_URLS), json.dumps(CLIENT_URLS), " ".join(CLIENT_URLS)])
def test_addresses_of_applications_are_a_list_or_a_text(value: object) -> None:
    assert fields(client_urls=value).cluster().client_urls == CLIENT_URLS


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"pulsar": "one.example"}, "no list of addresses"),
        ([6650], "no list of addresses"),
        ('["pulsar://one.example', "no list of addresses"),
        ("pulsar://me:pw@one.example:6650", "has credentials or a query"),
        ("one.example:6650", "is not usable, 'one.example:6650'"),
        ("pulsar://", "is not usable, 'pulsar:'"),
        ("pulsar://one.example:6650 pulsar://two.example:6650", "at most one of each kind"),
    ],
)
def test_addresses_of_applications_that_cannot_be_used_are_named(value: object, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        fields(client_urls=value).cluster()
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tls_trust_flie", "Extra 'tls_trust_flie' of connection 'blue' is unknown: did you mean 'tls_trust_file'?"),
        ("headers", "Extra 'headers' of connection 'blue' is unknown: known are token_file,"),
    ],
)
def test_an_unknown_extra_is_refused_with_the_nearest_name(name: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        fields(**{name: "x"}).cluster()
    assert words in str(error.value)


def fields(**extra: object) -> ConnectionFields:
    return ConnectionFields(conn_id="blue", host="https://blue.example:8443", extra=dict(extra))


def test_a_login_makes_the_password_that_of_a_user() -> None:
    cluster = ConnectionFields(conn_id="blue", host="blue", login="me", password="s3cret").cluster()
    assert (cluster.user, cluster.password, cluster.token) == ("me", "s3cret", None)
    assert "s3cret" not in repr(cluster)


@pytest.mark.parametrize("find", [ConnectionFields.cluster, ConnectionFields.link])
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"login": "me"}, "has the user name 'me' without a password"),
        ({"login": "me", "password": "s3", "extra": {"token": "s3"}}, "beside a token"),
        ({"login": "me", "password": "s3", "extra": {"token_file": "/jwt"}}, "beside a token"),
        ({"login": "me", "password": "s3", "extra": {"oauth2_key_file": "/k", "oauth2_issuer_url": "i"}}, "beside a"),
        ({"login": "m:e", "password": "s3"}, "must not contain a colon"),
    ],
)
def test_a_user_has_a_password_and_no_token(find: Any, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem) as caught:
        find(ConnectionFields(conn_id="blue", host="blue", **values))
    assert "s3" not in str(caught.value)
