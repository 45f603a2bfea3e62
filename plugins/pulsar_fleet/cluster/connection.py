"""The connection to one cluster: addresses, credentials without secrets in `repr`, and its TLS context."""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.oauth2 import OAuth2

_PLUGINS = "org.apache.pulsar.client.impl.auth."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationAuth:
    """Credentials and trust of the brokers that replicate to a cluster. Every path is one on these brokers.

    Without a credential brokers use that of their own configuration, `brokerClientAuthenticationParameters` (observed);
    without a trust file they do not use that of their configuration (observed): they trust what their JVM trusts.

    :param token: a JWT; it is stored in the cluster data, which a superuser can read.
    :param token_file: a file with the JWT.
    :param oauth2: a client of an issuer.
    :param user: the user of basic authentication; its password too is stored in the cluster data.
    :param tls_trust_file: PEM of the authorities that signed the certificates of the cluster.
    :param tls_certificate_file: PEM of a client certificate; needs `tls_key_file`.
    """

    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    oauth2: OAuth2 | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls_trust_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None

    def cluster_data(self) -> JsonObject:
        """The keys of a cluster's data for it; `authenticationParameters` may hold a secret."""
        trust = {"brokerClientTrustCertsFilePath": self.tls_trust_file} if self.tls_trust_file else {}
        plugin, parameters = self._authentication()
        return {**trust, "authenticationPlugin": plugin, "authenticationParameters": parameters} if plugin else trust

    def _authentication(self) -> tuple[str, str]:
        if self.oauth2:
            return f"{_PLUGINS}oauth2.AuthenticationOAuth2", _oauth2_parameters(self.oauth2)
        if self.token or self.token_file:
            parameters = f"token:{self.token}" if self.token else f"file://{self.token_file}"
            return f"{_PLUGINS}AuthenticationToken", parameters
        if self.user:
            parameters = json.dumps({"userId": self.user, "password": self.password})
            return f"{_PLUGINS}AuthenticationBasic", parameters
        if self.tls_certificate_file:
            files = f"tlsCertFile:{self.tls_certificate_file},tlsKeyFile:{self.tls_key_file}"
            return f"{_PLUGINS}AuthenticationTls", files
        return "", ""


def _oauth2_parameters(oauth2: OAuth2) -> str:
    if oauth2.key_file:
        key = f"file://{oauth2.key_file}"
    else:
        content = {"type": "client_credentials", "client_id": oauth2.client_id, "client_secret": oauth2.client_secret}
        key = f"data:application/json;base64,{base64.b64encode(json.dumps(content).encode()).decode()}"
    fields = {
        "type": "client_credentials",
        "privateKey": key,
        "issuerUrl": oauth2.issuer_url,
        "audience": oauth2.audience,
        "scope": oauth2.scope,
    }
    return json.dumps({name: value for name, value in fields.items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """Addresses of a cluster, and our credentials.

    :param name: the Airflow connection id, or the cluster's name on the command line; used in messages.
    :param admin_url: base of the admin API, `http://host:port`, without `/admin/v2`; with several hosts, as in
        `http://host:port,host:port`, the next is called when one does not answer.
    :param service_url: `pulsar://…` or `pulsar+ssl://…` for messages.
    :param listener_name: of the brokers' advertised listeners, the one whose addresses are reached from here; None: the
        brokers' own choice.
    :param token: a JWT, or None without token authentication.
    :param token_file: a file with the JWT; read at each use, so that a rotated token is used at once.
    :param oauth2: issuer and key of access tokens, instead of a token.
    :param user: the user of basic authentication, instead of a token; needs `password`.
    :param tls_trust_file: PEM of the certificate authorities to trust; the system's when None.
    :param tls_certificate_file: PEM of our certificate for mTLS; needs `tls_key_file`.
    :param cluster_name: the cluster's own name, for a role that may not read it from the broker.
    :param broker_hosts: hosts to which the token may be sent after a redirect, for a role that may not list brokers.
    :param broker_urls: pairs of `host:port` or host of a broker, as brokers list each other, and the admin URL at which
        it is reached from here; or a template of all these URLs with `{host}`. For brokers behind a load balancer.
    :param client_urls: addresses at which applications reach the cluster, at most one of each scheme, where they differ
        from ours: `pulsar://…`, `pulsar+ssl://…`, `http://…`, `https://…`.
    :param replication_auth: how brokers of other clusters authenticate to this one; None: with their own credentials.
    :param timeout_seconds: of one HTTP call.
    :param max_connections: HTTP connections to one broker; more than 8 gain nothing (measured).
    """

    name: str
    admin_url: str
    service_url: str | None = None
    listener_name: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    oauth2: OAuth2 | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls_trust_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    cluster_name: str | None = None
    broker_hosts: tuple[str, ...] = ()
    broker_urls: tuple[tuple[str, str], ...] | str = ()
    client_urls: tuple[str, ...] = ()
    replication_auth: ReplicationAuth | None = None
    timeout_seconds: float = 30.0
    max_connections: int = 8

    def __post_init__(self) -> None:
        has_token = bool(self.token or self.token_file or self.oauth2)
        if problem := user_problem(self.user, self.password, has_token=has_token):
            raise InvalidRequest(f"Connection {self.name!r} {problem}")
        for url in self.admin_urls:
            if problem := admin_url_problem(url):
                raise InvalidRequest(
                    f"The admin URL of {self.name!r} {problem}: write it as http://host:port or https://host:port."
                )
        if self.service_url and urlsplit(self.service_url).scheme not in ("pulsar", "pulsar+ssl"):
            raise InvalidRequest(
                f"The service URL {self.service_url!r} of {self.name!r} is not usable: "
                "write it as pulsar://host:port or pulsar+ssl://host:port."
            )
        for url in self._broker_urls():
            if problem := admin_url_problem(url.replace(HOST, "host")):
                raise InvalidRequest(
                    f'An address in "broker_urls" of {self.name!r} {problem}: write it as https://host:port.'
                )

        schemes = [urlsplit(url).scheme for url in self.client_urls]
        for url, scheme in zip(self.client_urls, schemes, strict=True):
            unsafe = any(sign in url for sign in _UNSAFE_SIGNS)
            if unsafe or scheme not in _CLIENT_SCHEMES or not urlsplit(url).hostname or schemes.count(scheme) > 1:
                problem = UNSAFE_URL if unsafe else f"is not usable, {url!r}"
                raise InvalidRequest(
                    f'An address in "client_urls" of {self.name!r} {problem}: write at most one of each kind, '
                    "pulsar://host:port, pulsar+ssl://host:port, http://host:port and https://host:port."
                )

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """`admin_url` as one URL for each of its hosts, without a slash at the end."""
        return split_admin_url(self.admin_url)

    def _broker_urls(self) -> tuple[str, ...]:
        return (self.broker_urls,) if isinstance(self.broker_urls, str) else tuple(url for _, url in self.broker_urls)

    def broker_url(self, broker: str) -> str | None:
        """The admin URL of a broker (`host:port`) by `broker_urls`; None if it names none."""
        host = urlsplit(f"//{broker}").hostname or ""
        if isinstance(self.broker_urls, str):
            return self.broker_urls.replace(HOST, host)
        # Brokers list each other by plain ports and redirect to TLS ports: a host with one broker is enough.
        urls = [url for name, url in self.broker_urls if urlsplit(f"//{name}").hostname == host]
        return dict(self.broker_urls).get(broker) or (urls[0] if len(urls) == 1 else None)

    def is_of_broker(self, host: str) -> bool:
        """Whether a host is one of `broker_urls`, so that it gets our credentials."""
        patterns = (str(urlsplit(url).hostname) for url in self._broker_urls())
        return any(re.fullmatch(re.escape(pattern).replace(re.escape(HOST), ".+"), host) for pattern in patterns)

    def reachable(self, url: str) -> str:
        """A URL to which a broker redirects, at the address where that broker is reached from here."""
        parts = urlsplit(url)
        base = self.broker_url(parts.netloc)
        return url if base is None else base.rstrip("/") + url.removeprefix(f"{parts.scheme}://{parts.netloc}")

    @property
    def argument(self) -> str:
        """The cluster as a command takes it: its admin URL if it was given by that, else the connection's id."""
        return self.admin_url if self.name == urlsplit(self.admin_url).netloc else self.name

    def read_token(self, refused: str | None = None) -> str | None:
        """The JWT to send, or None; a token file that cannot be read is `InvalidRequest`. See `OAuth2.access_token`.

        :param refused: a token that a broker did not accept.
        """
        if self.oauth2:
            return self.oauth2.access_token(refused)
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text().strip()
        except OSError as error:
            raise InvalidRequest(
                f"The token file {self.token_file!r} of {self.name!r} cannot be read: {error}."
            ) from error

    def with_credentials_of(self, other: ClusterConnection | None) -> ClusterConnection:
        """These addresses with the credentials of `other`, and its trusted authorities if it has any; None: without."""
        values: dict[str, Any] = {name: getattr(other, name, None) for name in _CREDENTIALS}
        trust = other.tls_trust_file if other else None
        return replace(self, **values, tls_trust_file=trust or self.tls_trust_file)

    def require_service_url(self) -> str:
        """The broker service URL; without one, `InvalidRequest` names the setting to add."""
        if not self.service_url:
            raise InvalidRequest(
                f"{self.name!r} has no broker service URL, which reading or redirecting messages needs: "
                'add "service_url": "pulsar://host:port" to the extras of the connection '
                "(for a cluster named by its URL: set PULSAR_FLEET_SOURCE_SERVICE_URL or …_TARGET_…)."
            )
        return self.service_url

    def cluster_data(self) -> JsonObject:
        """Its addresses for the brokers of other clusters, as a cluster's data, with what `replication_auth` says.

        The files of this connection are on our machine, so no path of them is in it. It may hold a secret.
        """
        service_url = self.require_service_url()
        link = self.replication_auth.cluster_data() if self.replication_auth else {}
        if not self.admin_url.startswith("https:"):
            return {"serviceUrl": self.admin_url, "brokerServiceUrl": service_url, **link}
        addresses = {"serviceUrlTls": self.admin_url, "brokerServiceUrlTls": service_url}
        return {**addresses, "brokerClientTlsEnabled": True, **link}


_CREDENTIALS = ("token", "token_file", "oauth2", "user", "password", "tls_certificate_file", "tls_key_file")
_CLIENT_SCHEMES = ("pulsar", "pulsar+ssl", "http", "https")
HOST = "{host}"
"""Stands for a broker's host in a template of `broker_urls`."""
_UNSAFE_SIGNS = "@?#"
UNSAFE_URL = "has credentials or a query, which other users may read"


def user_problem(user: str | None, password: str | None, *, has_token: bool) -> str:
    """Why a user and a password cannot be used; empty if they can, or if there are none."""
    if not user:
        return "has a password without a user name: set both." if password else ""
    if not password:
        return f"has the user name {user!r} without a password: set both, or clear the user name."
    if has_token:
        return f"has the user name {user!r} beside a token or a client of OAuth 2.0: keep one of them."
    return f"has the user name {user!r}, which must not contain a colon." if ":" in user else ""


def split_admin_url(text: str) -> tuple[str, ...]:
    """`http://a:8080,b:8080/path` as one URL for each host, without a slash at the end."""
    scheme, separator, rest = text.partition("://")
    hosts, slash, path = rest.rstrip("/").partition("/")
    return tuple(f"{scheme}{separator}{host.strip()}{slash}{path}" for host in hosts.split(","))


def admin_url_problem(url: str) -> str:
    """Why an admin URL cannot be used; empty if it can. A URL that may contain a secret is not repeated."""
    if any(sign in url for sign in _UNSAFE_SIGNS):
        return UNSAFE_URL
    if "," in url:
        return f"names several hosts, {url!r}, where one is meant"
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.scheme not in ("http", "https") or parts.port == 0:
            return f"is not usable, {url!r}"
    except ValueError:
        return "has an invalid host or port"
    if parts.path.startswith(("/admin", "/lookup")):
        return f"has a path, {url!r}, which the calls add themselves"
    return ""


def require_two(connections: Sequence[str]) -> None:
    """Refuse a single cluster where several are compared or connected."""
    if len(connections) < 2:
        named = f"Only {connections[0]!r}" if connections else "No cluster"
        raise InvalidRequest(f"{named} is given: name at least two clusters.")


def refuse_same_cluster(source: str, target: str, names: tuple[str, str]) -> None:
    """Refuse two connections to the same cluster.

    :param names: the clusters' own.
    """
    if names[0] == names[1]:
        raise InvalidRequest(
            f"{source!r} and {target!r} both lead to cluster {names[0]!r}: name two different clusters."
        )


def tls_context(connection: ClusterConnection) -> ssl.SSLContext:
    """The TLS context, which always checks the host name; `InvalidRequest` names a file that cannot be used."""
    trust, certificate, key = connection.tls_trust_file, connection.tls_certificate_file, connection.tls_key_file
    try:
        context = ssl.create_default_context(cafile=trust)
    except OSError as error:
        raise _unusable(connection, "tls_trust_file", str(trust), error) from error
    if certificate:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise _unusable(connection, "tls_certificate_file", f"{certificate} with {key}", error) from error
    return context


def _unusable(connection: ClusterConnection, extra: str, files: str, error: OSError) -> InvalidRequest:
    reason = error.strerror or str(error)
    return InvalidRequest(
        f"The extra {extra!r} of {connection.name!r} names {files}, which cannot be used: {reason}. Every worker needs "
        "it at this path, as PEM."
    )
