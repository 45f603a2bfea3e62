"""Two clusters as they are reached in real fleets: with tokens, certificates, an issuer, or through one proxy.

Secured ones have one authority and one token secret: an application that blue redirects presents the same credential to
green and keeps its trust file, and a gate of a migration refuses clusters of two authorities.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tests.support.following_proxy import FollowingProxy
from tests.support.issuer import SECRET, issuing
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection, ReplicationAuth
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_sandbox import Cluster, Sandbox
from pulsar_sandbox.workload import EstateSpec, build_estate
from pulsar_sandbox.workload.live import IDLE_SUBSCRIPTION, live_topics

NAMES = ("blue", "green")
FILES = ("token_file", "tls_trust_file", "tls_certificate_file", "tls_key_file")
PASSWORD = "canary-pass-4711"
_HASH = "$apr1$fleettst$st9deC1X3Vs88gMuTZLBM0"
"""Of `PASSWORD`, by `openssl passwd -apr1`."""
LINK = "_link"
"""Ends the id of the connection with the credentials of replication."""
_Entered = TypeVar("_Entered")


@dataclass(frozen=True)
class Fleet:
    """Blue and green, as Airflow reaches them.

    :param secrets: what may be written nowhere.
    :param environment: variables of the processes that reach the clusters.
    """

    sandbox: Sandbox
    blue: ClusterConnection
    green: ClusterConnection
    secrets: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def shell(self, folder: Path) -> Shell:
        """Commands that name both clusters by their connections."""
        sides = (self.blue.name, self.green.name)
        return Shell(folder, sides, self.variables(), self.secrets)

    def variables(self) -> dict[str, str]:
        """The variables of a process that reaches both clusters by their connections."""
        connections: dict[str, str] = {}
        for connection in (self.blue, self.green):
            connections[f"AIRFLOW_CONN_{connection.name.upper()}"] = airflow_connection(connection)
            if connection.replication_auth:
                connections[f"AIRFLOW_CONN_{connection.name.upper()}{LINK.upper()}"] = _link(connection)
        return {**self.environment, **connections}


def airflow_connection(connection: ClusterConnection) -> str:
    """A connection as a variable of Airflow holds it."""
    extra = {name: getattr(connection, name) for name in ("service_url", *FILES, "cluster_name")}
    extra |= _oauth2(connection.oauth2) | {"replication_auth": connection.replication_auth and connection.name + LINK}
    extra |= {"broker_urls": dict(connection.broker_urls), "client_urls": connection.client_urls}
    password = connection.token or connection.password
    return _document(extra, host=connection.admin_url, login=connection.user, password=password)


def shell_of(folder: Path, sides: tuple[str, str], connections: Mapping[str, ClusterConnection]) -> Shell:
    """A shell that knows each of these connections by its name; commands that take `sides` run between two of them."""
    variables = {f"AIRFLOW_CONN_{name.upper()}": airflow_connection(one) for name, one in connections.items()}
    return Shell(folder, sides, variables)


def _link(connection: ClusterConnection) -> str:
    """The connection with the credentials of brokers that replicate to a cluster."""
    link = connection.replication_auth
    assert link is not None
    extra = {name: getattr(link, name) for name in FILES} | _oauth2(link.oauth2)
    return _document(extra, login=link.user, password=link.token or link.password)


def _oauth2(oauth2: OAuth2 | None) -> dict[str, Any]:
    return {f"oauth2_{name}": getattr(oauth2, name) for name in OAuth2.__slots__} if oauth2 else {}


def _document(extra: dict[str, Any], **fields: str | None) -> str:
    return json.dumps(
        {"conn_type": "pulsar", **fields, "extra": {name: value for name, value in extra.items() if value}}
    )


@contextmanager
def with_tokens(folder: Path) -> Iterator[Fleet]:
    """Tokens and TLS, two brokers each."""
    with Sandbox.start(folder, clusters=NAMES, secure=True, one_authority=True, brokers=2) as sandbox:
        # Applications with and without TLS; which of several brokers stands for the cluster, nobody can guess.
        sides = [
            secured(
                cluster,
                link={"token": cluster.token("broker")},
                token=cluster.token(),
                client_urls=_client_urls(cluster),
            )
            for cluster in sandbox
        ]
        yield Fleet(sandbox, *sides, secrets=(sandbox["blue"].token(), sandbox["blue"].token("broker")))


@contextmanager
def with_certificates(folder: Path) -> Iterator[Fleet]:
    """Certificates instead of tokens, for HTTP and for messages."""
    with Sandbox.start(folder, clusters=NAMES, secure=True, one_authority=True) as sandbox:
        keys = Path(sandbox["blue"].trust_file).parent
        files = {"tls_certificate_file": str(keys / "broker.cert.pem"), "tls_key_file": str(keys / "broker.key.pem")}
        sides = [secured(cluster, link=files, **files) for cluster in sandbox]
        yield Fleet(sandbox, *sides, secrets=((keys / "broker.key.pem").read_text().splitlines()[3],))


@contextmanager
def with_issuer(folder: Path) -> Iterator[Fleet]:
    """Access tokens of an issuer, over TLS."""
    with (
        Sandbox.start(folder, clusters=NAMES, secure=True, one_authority=True) as sandbox,
        issuing(sandbox["blue"].token) as issuer,
    ):
        key = issuer.key_file(folder)
        link = {"oauth2": OAuth2(key_file=key, issuer_url=issuer.url)}
        sides = [secured(cluster, link=link, oauth2=OAuth2(key_file=key)) for cluster in sandbox]
        yield Fleet(sandbox, *sides, secrets=(sandbox["blue"].token(), SECRET))


@contextmanager
def with_passwords(folder: Path) -> Iterator[Fleet]:
    """Users with passwords, over TLS."""
    users = folder / "users"
    users.write_text("".join(f"{user}:{_HASH}\n" for user in ("admin", "broker")))
    package = "org.apache.pulsar.broker.authentication."
    providers = ",".join(f"{package}AuthenticationProvider{kind}" for kind in ("Token", "Basic"))
    settings = {"authenticationProviders": providers, "basicAuthConf": users.as_uri()}
    with Sandbox.start(
        folder, clusters=NAMES, secure=True, one_authority=True, settings=dict.fromkeys(NAMES, settings)
    ) as sandbox:
        link = {"user": "broker", "password": PASSWORD}
        sides = [secured(cluster, link=link, user="admin", password=PASSWORD) for cluster in sandbox]
        yield Fleet(sandbox, *sides, secrets=(PASSWORD, base64.b64encode(f"admin:{PASSWORD}".encode()).decode()))


@contextmanager
def behind_one_proxy(folder: Path, *, names_brokers: bool = True) -> Iterator[Fleet]:
    """All admin calls go through one proxy to two brokers, whose own addresses our processes cannot reach.

    :param names_brokers: the connections say how the proxy leads to each broker (`broker_urls`).
    """
    with Sandbox.start(folder, clusters=NAMES, brokers=2) as sandbox, ExitStack() as stack:
        sides = [_proxied(stack, cluster, names_brokers=names_brokers) for cluster in sandbox]
        ports = ",".join(str(urlsplit(url).port) for cluster in sandbox for url in cluster.admin_urls)
        environment = {"UNREACHABLE_PORTS": ports, "PYTHONPATH": str(Path(__file__).parent / "unreachable")}
        yield Fleet(sandbox, *sides, environment=environment)


@contextmanager
def from_4_to_5(folder: Path) -> Iterator[Fleet]:
    """Without security: an old cluster of 4.2, a new one of 5.0."""
    with Sandbox.start(folder, clusters=NAMES, version={"blue": "4.2.4", "green": "5.0.1"}) as sandbox:
        yield Fleet(sandbox, connection(sandbox["blue"]), connection(sandbox["green"]))


FLEETS: Mapping[str, Callable[[Path], AbstractContextManager[Fleet]]] = {
    "tokens": with_tokens,
    "certificates": with_certificates,
    "issuer": with_issuer,
    "4_to_5": from_4_to_5,
    "passwords": with_passwords,
    "proxy": behind_one_proxy,
}


def _client_urls(cluster: Cluster) -> tuple[str, ...]:
    return (cluster.service_url, cluster.service_url_tls, cluster.admin_url, cluster.admin_url_tls)


def connection(cluster: Cluster) -> ClusterConnection:
    """A connection without credentials to every broker, under the cluster's own name."""
    hosts = ",".join(urlsplit(url).netloc for url in cluster.admin_urls)
    return ClusterConnection(name=cluster.name, admin_url=f"http://{hosts}", service_url=cluster.service_url)


async def build_redirectable(blue: ClusterConnection, live: NamespaceName) -> None:
    """A namespace for traffic that retains nothing and whose subscriptions all have consumers, as a redirect needs."""
    await build_estate(blue, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=1, history=0))
    async with AdminClient(blue) as admin:
        await admin.delete(f"/namespaces/{live.path}/retention")
        for topic in live_topics(live):
            await admin.delete_subscription(topic, IDLE_SUBSCRIPTION)


def secured(cluster: Cluster, *, link: dict[str, Any], **credentials: Any) -> ClusterConnection:
    """A connection over TLS, with these fields of `ClusterConnection`.

    :param link: the credentials of brokers that replicate to the cluster, fields of `ReplicationAuth`.
    """
    return ClusterConnection(
        name=f"pulsar_{cluster.name}",
        admin_url=cluster.admin_url_tls,
        service_url=cluster.service_url_tls,
        tls_trust_file=cluster.trust_file,
        replication_auth=ReplicationAuth(tls_trust_file=cluster.trust_file, **link),
        **credentials,
    )


def _proxied(stack: ExitStack, cluster: Cluster, *, names_brokers: bool) -> ClusterConnection:
    proxy = stack.enter_context(_in_thread(FollowingProxy(cluster.admin_urls)))
    urls = ((urlsplit(url).netloc, f"{proxy.url}/broker-{number}") for number, url in enumerate(cluster.admin_urls))
    return ClusterConnection(
        name=f"pulsar_{cluster.name}",
        admin_url=proxy.url,
        service_url=cluster.service_url,
        broker_urls=tuple(urls) if names_brokers else (),
    )


@contextmanager
def _in_thread(context: AbstractAsyncContextManager[_Entered]) -> Iterator[_Entered]:
    """Enter it in an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
