"""Two clusters as they are reached in real fleets: with tokens, certificates, an issuer, or through one proxy."""

from __future__ import annotations

import asyncio
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

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_sandbox import Cluster, Sandbox

NAMES = ("blue", "green")
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
        connections = {
            f"AIRFLOW_CONN_{connection.name.upper()}": airflow_connection(connection)
            for connection in (self.blue, self.green)
        }
        sides = (self.blue.name, self.green.name)
        return Shell(folder, sides, {**self.environment, **connections}, self.secrets)


def airflow_connection(connection: ClusterConnection) -> str:
    """A connection as a variable of Airflow holds it."""
    names = ("service_url", "token_file", "tls_trust_file", "tls_certificate_file", "tls_key_file", "cluster_name")
    extra = {name: getattr(connection, name) for name in names}
    if connection.oauth2:
        extra |= {f"oauth2_{name}": getattr(connection.oauth2, name) for name in OAuth2.__slots__}
    extra["broker_urls"] = dict(connection.broker_urls)
    document = {"conn_type": "pulsar", "host": connection.admin_url, "password": connection.token}
    return json.dumps({**document, "extra": {name: value for name, value in extra.items() if value}})


@contextmanager
def with_tokens(folder: Path) -> Iterator[Fleet]:
    """Tokens and TLS, two brokers each."""
    with Sandbox.start(folder, clusters=NAMES, secure=True, brokers=2) as sandbox:
        sides = [_secured(cluster, token=cluster.token()) for cluster in sandbox]
        yield Fleet(sandbox, *sides, secrets=(sandbox["blue"].token(), sandbox["blue"].token("broker")))


@contextmanager
def with_certificates(folder: Path) -> Iterator[Fleet]:
    """Certificates instead of tokens, for HTTP and for messages."""
    with Sandbox.start(folder, clusters=NAMES, secure=True) as sandbox:
        keys = Path(sandbox["blue"].trust_file).parent
        files = {"tls_certificate_file": str(keys / "broker.cert.pem"), "tls_key_file": str(keys / "broker.key.pem")}
        sides = [_secured(cluster, **files) for cluster in sandbox]
        yield Fleet(sandbox, *sides, secrets=((keys / "broker.key.pem").read_text().splitlines()[3],))


@contextmanager
def with_issuer(folder: Path) -> Iterator[Fleet]:
    """Access tokens of an issuer, over TLS."""
    with Sandbox.start(folder, clusters=NAMES, secure=True) as sandbox, issuing(sandbox["blue"].token) as issuer:
        key = issuer.key_file(folder)
        sides = [_secured(cluster, oauth2=OAuth2(key_file=key)) for cluster in sandbox]
        yield Fleet(sandbox, *sides, secrets=(sandbox["blue"].token(), SECRET))


@contextmanager
def behind_one_proxy(folder: Path) -> Iterator[Fleet]:
    """All admin calls go through one proxy to two brokers, whose own addresses our processes cannot reach."""
    with Sandbox.start(folder, clusters=NAMES, brokers=2) as sandbox, ExitStack() as stack:
        sides = [_proxied(stack, cluster) for cluster in sandbox]
        ports = ",".join(str(urlsplit(url).port) for cluster in sandbox for url in cluster.admin_urls)
        environment = {"UNREACHABLE_PORTS": ports, "PYTHONPATH": str(Path(__file__).parent / "unreachable")}
        yield Fleet(sandbox, *sides, environment=environment)


FLEETS: Mapping[str, Callable[[Path], AbstractContextManager[Fleet]]] = {
    "tokens": with_tokens,
    "certificates": with_certificates,
    "issuer": with_issuer,
    "proxy": behind_one_proxy,
}


def connection(cluster: Cluster) -> ClusterConnection:
    """A connection without credentials, under the cluster's own name."""
    return ClusterConnection(name=cluster.name, admin_url=cluster.admin_url, service_url=cluster.service_url)


def _secured(cluster: Cluster, **credentials: Any) -> ClusterConnection:
    """A connection over TLS, with these fields of `ClusterConnection`."""
    return ClusterConnection(
        name=f"pulsar_{cluster.name}",
        admin_url=cluster.admin_url_tls,
        service_url=cluster.service_url_tls,
        tls_trust_file=cluster.trust_file,
        **credentials,
    )


def _proxied(stack: ExitStack, cluster: Cluster) -> ClusterConnection:
    proxy = stack.enter_context(_in_thread(FollowingProxy(cluster.admin_urls)))
    urls = ((urlsplit(url).netloc, f"{proxy.url}/broker-{number}") for number, url in enumerate(cluster.admin_urls))
    return ClusterConnection(
        name=f"pulsar_{cluster.name}",
        admin_url=proxy.url,
        service_url=cluster.service_url,
        broker_urls=tuple(urls),
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
