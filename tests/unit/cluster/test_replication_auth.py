"""Cluster data has the credentials of the brokers that replicate, and no path of ours."""

from __future__ import annotations

import base64
import json

import pytest

from pulsar_fleet.cluster.connection_fields import ConnectionFields
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.messages.credentials import named_connection

GREEN = {
    "host": "https://green:8443",
    "password": "ours",
    "extra": {
        "service_url": "pulsar+ssl://green:6651",
        "tls_trust_file": "/worker/ca.pem",
        "replication_auth": "green_link",
    },
}
ADDRESSES = {
    "serviceUrlTls": "https://green:8443",
    "brokerServiceUrlTls": "pulsar+ssl://green:6651",
    "brokerClientTlsEnabled": True,
}
PLUGINS = "org.apache.pulsar.client.impl.auth."


def link(password: str | None = None, **extra: str) -> ConnectionFields:
    return ConnectionFields(conn_id="green_link", host=None, password=password, extra=extra)


@pytest.mark.parametrize(
    ("link", "plugin", "parameters"),
    [
        (link("s3cret"), "AuthenticationToken", "token:s3cret"),
        (link(token_file="/broker/jwt"), "AuthenticationToken", "file:///broker/jwt"),
        (
            ConnectionFields(conn_id="link", host=None, login="broker", password="s3cret"),
            "AuthenticationBasic",
            '{"userId": "broker", "password": "s3cret"}',
        ),
        (
            link(tls_certificate_file="/broker/cert.pem", tls_key_file="/broker/key.pem"),
            "AuthenticationTls",
            "tlsCertFile:/broker/cert.pem,tlsKeyFile:/broker/key.pem",
        ),
    ],
)
def test_credentials_are_those_of_the_plugin(link: ConnectionFields, plugin: str, parameters: str) -> None:
    data = link.link().cluster_data()
    assert data == {"authenticationPlugin": PLUGINS + plugin, "authenticationParameters": parameters}
    assert "s3cret" not in repr(link.link())


def test_a_client_of_an_issuer_is_given_by_its_key_file_or_by_its_secret() -> None:
    by_file = link(oauth2_key_file="/broker/key.json", oauth2_issuer_url="https://issuer", oauth2_audience="urn:pulsar")
    data = by_file.link().cluster_data()
    assert data["authenticationPlugin"] == f"{PLUGINS}oauth2.AuthenticationOAuth2"
    assert json.loads(data["authenticationParameters"]) == {
        "type": "client_credentials",
        "privateKey": "file:///broker/key.json",
        "issuerUrl": "https://issuer",
        "audience": "urn:pulsar",
    }
    by_secret = link("s3cret", oauth2_client_id="brokers", oauth2_issuer_url="https://issuer")
    key = json.loads(by_secret.link().cluster_data()["authenticationParameters"])["privateKey"]
    assert json.loads(base64.b64decode(key.removeprefix("data:application/json;base64,")))["client_secret"] == "s3cret"


def test_a_connection_names_the_one_with_its_replication_credentials() -> None:
    environment = {
        "AIRFLOW_CONN_GREEN": json.dumps(GREEN),
        "AIRFLOW_CONN_GREEN_LINK": json.dumps({"password": "theirs", "extra": {"tls_trust_file": "/broker/ca.pem"}}),
    }
    assert named_connection("green", environment).cluster_data() == {
        **ADDRESSES,
        "brokerClientTrustCertsFilePath": "/broker/ca.pem",
        "authenticationPlugin": f"{PLUGINS}AuthenticationToken",
        "authenticationParameters": "token:theirs",
    }
    with pytest.raises(InvalidRequest, match="'green_link' does not exist"):
        named_connection("green", {"AIRFLOW_CONN_GREEN": json.dumps(GREEN)})


def test_no_path_of_ours_is_given_to_brokers() -> None:
    fields = ConnectionFields(
        conn_id="green",
        host="https://green:8443",
        extra={"service_url": "pulsar+ssl://green:6651", "tls_trust_file": "/worker/ca.pem"},
    )
    assert fields.cluster().cluster_data() == ADDRESSES


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (link(service_url="pulsar://x:1"), "Extra 'service_url' of connection 'green_link' is unknown"),
        (link(tls_certificate_file="/broker/cert.pem"), "certificate without its key"),
        (link(oauth2_key_file="/broker/key.json"), "has no issuer"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused(link: ConnectionFields, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        link.link()
