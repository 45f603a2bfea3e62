"""The hook by itself: every way to authenticate opens the admin API and messages; a wrong one says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.issuer import CLIENT, SECRET, Issuer, issuing
from tests.support.kinds import StartClusters

from pulsar_fleet.airflow import PulsarHook
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PermissionDenied
from pulsar_fleet.messages.clients.received import ReceivedMessage
from pulsar_fleet.messages.clients.stream import Subscription
from pulsar_sandbox import Cluster

pytestmark = pytest.mark.long

Connect = Callable[..., PulsarHook]
PASSWORD = "a-password-of-7391"
USERS = "admin:$apr1$fleet123$UpGjwMhqLlzM/spYjBiTx1\n"
"""As `htpasswd` writes it for the password."""
PROVIDERS = ",".join(
    f"org.apache.pulsar.broker.authentication.AuthenticationProvider{kind}" for kind in ("Token", "Tls", "Basic")
)
TOPIC = "persistent://public/default/hook"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Cluster]:
    """A cluster with TLS that takes tokens, client certificates and passwords."""
    users = tmp_path_factory.mktemp("users") / "htpasswd"
    users.write_text(USERS)
    settings = {"blue": {"authenticationProviders": PROVIDERS, "basicAuthConf": users.as_uri()}}
    folder = tmp_path_factory.mktemp("secure")
    with start_clusters(folder, clusters=("blue",), secure=True, settings=settings) as sandbox:
        yield sandbox["blue"]


@pytest.fixture(scope="module")
def issuer(cluster: Cluster) -> Iterator[Issuer]:
    with issuing(cluster.token) as issuer:
        yield issuer


@pytest.fixture
def connect(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """The hook of a connection with these fields, over TLS."""

    def hook(extra: dict[str, Any] | None = None, **fields: Any) -> PulsarHook:
        urls = {"service_url": cluster.service_url_tls, "tls_trust_file": cluster.trust_file}
        document = {"conn_type": "pulsar", "host": cluster.admin_url_tls, **fields, "extra": {**urls, **(extra or {})}}
        monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(document))
        return PulsarHook("pulsar_test")

    return hook


def token(cluster: Cluster, *_: Any) -> dict[str, Any]:
    return {"password": cluster.token()}


def token_file(cluster: Cluster, _: Issuer, folder: Path) -> dict[str, Any]:
    (folder / "token").write_text(cluster.token())
    return {"extra": {"token_file": str(folder / "token")}}


def certificate(cluster: Cluster, *_: Any) -> dict[str, Any]:
    keys = Path(cluster.trust_file).parent
    files = {"tls_certificate_file": str(keys / "broker.cert.pem"), "tls_key_file": str(keys / "broker.key.pem")}
    return {"extra": files}


def oauth2_key_file(_: Cluster, issuer: Issuer, folder: Path) -> dict[str, Any]:
    return {"extra": {"oauth2_key_file": issuer.key_file(folder)}}


def oauth2_client(_: Cluster, issuer: Issuer, __: Path) -> dict[str, Any]:
    return {"password": SECRET, "extra": {"oauth2_client_id": CLIENT, "oauth2_issuer_url": issuer.url}}


def user(*_: Any) -> dict[str, Any]:
    return {"login": "admin", "password": PASSWORD}


WAYS = (token, token_file, certificate, oauth2_key_file, oauth2_client, user)


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_authenticate_opens_the_admin_api(
    way: Callable[..., dict[str, Any]], connect: Connect, cluster: Cluster, issuer: Issuer, tmp_path: Path
) -> None:
    async with connect(**way(cluster, issuer, tmp_path)).admin() as admin:
        assert await admin.cluster_name() == "blue"
        assert "public" in await admin.tenants()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_authenticate_publishes_and_consumes(
    way: Callable[..., dict[str, Any]], connect: Connect, cluster: Cluster, issuer: Issuer, tmp_path: Path
) -> None:
    hook, received = connect(**way(cluster, issuer, tmp_path)), list[ReceivedMessage]()
    topic = f"{TOPIC}-{way.__name__}"
    message = {"content": "42", "key": "acme", "properties": {"unit": "EUR"}}
    assert hook.publish(topic, ["text", message]) == 2
    subscription = Subscription(topic=topic, name="test", initial_position="earliest")
    limits = {"most_messages": 2, "batch_size": 10, "wait_seconds": 20}
    assert hook.consume(subscription, received.extend, **limits)["messages"] == 2
    by_content = {message.content: (message.key, dict(message.properties)) for message in received}
    assert by_content == {b"text": (None, {}), b"42": ("acme", {"unit": "EUR"})}
    with hook.message_client() as client:
        assert client.get_topic_partitions(topic) == [topic]


@pytest.mark.parametrize("way", WAYS)
def test_the_test_button_names_the_cluster_and_both_addresses(
    way: Callable[..., dict[str, Any]], connect: Connect, cluster: Cluster, issuer: Issuer, tmp_path: Path
) -> None:
    succeeded, text = connect(**way(cluster, issuer, tmp_path)).test_connection()
    assert (succeeded, f"messages through {cluster.service_url_tls}" in text) == (True, True), text
    assert text.startswith(f"Cluster 'blue', Pulsar {cluster.version}, 1 broker;")


def test_a_cluster_without_authentication_is_reached_without_credentials(
    blue: ClusterConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"conn_type": "pulsar", "host": blue.admin_url, "extra": {"service_url": blue.service_url}}
    monkeypatch.setenv("AIRFLOW_CONN_PULSAR_TEST", json.dumps(document))
    succeeded, text = PulsarHook("pulsar_test").test_connection()
    assert (succeeded, text.startswith("Cluster 'blue'")) == (True, True), text


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "token": ({"password": "e30.e30.bad"}, "does not accept our credentials"),
    "user": ({"login": "admin", "password": "wrong"}, "does not accept our credentials"),
    "no credentials": ({}, "does not accept our credentials"),
    "user without password": ({"login": "admin"}, "without a password"),
    "unknown field": ({"extra": {"servcie_url": "pulsar://x:1"}}, "did you mean 'service_url'"),
    "missing file": ({"extra": {"token_file": "/nonexistent"}}, "'/nonexistent'"),
    "service URL": ({"extra": {"service_url": "http://x:1"}}, "write it as pulsar://host:port"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_test_button_says_what_is_wrong(wrong: str, connect: Connect) -> None:
    fields, sentence = WRONG[wrong]
    succeeded, text = connect(**fields).test_connection()
    assert (succeeded, sentence in text, "\n" in text) == (False, True, False), text


def test_the_test_button_says_that_no_broker_answers_for_messages(connect: Connect, cluster: Cluster) -> None:
    hook = connect(password=cluster.token(), extra={"service_url": "pulsar+ssl://127.0.0.1:9"})
    succeeded, text = hook.test_connection()
    assert (succeeded, "did not answer at its broker service URL 'pulsar+ssl://127.0.0.1:9'" in text) == (False, True)


def test_publishing_needs_rights(connect: Connect, cluster: Cluster) -> None:
    with pytest.raises(PermissionDenied, match="Let the role of the connection"):
        connect(password=cluster.token("nobody")).publish(TOPIC, ["text"])


def test_consuming_needs_rights(connect: Connect, cluster: Cluster) -> None:
    subscription = Subscription(topic=TOPIC, name="test")
    with pytest.raises(PermissionDenied, match="Let the role of the connection"):
        connect(password=cluster.token("nobody")).consume(
            subscription, print, most_messages=1, batch_size=1, wait_seconds=1
        )


@pytest.mark.parametrize("message", [42, {"contents": "x"}, {"content": 42}, None])
def test_what_is_no_message_is_refused_before_anything_is_published(message: Any, connect: Connect) -> None:
    with pytest.raises(InvalidRequest, match="A message is"):
        connect(password="x").publish(TOPIC, ["text", message])
