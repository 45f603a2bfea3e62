"""The connection to one cluster: addresses and credentials, without secrets in `repr`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_fleet.cluster.text import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """Addresses of a cluster, and our credentials.

    :param name: the Airflow connection id, or the cluster's name on the command line; used in messages.
    :param admin_url: base of the admin API, `http://host:port`, without `/admin/v2`.
    :param service_url: `pulsar://…` or `pulsar+ssl://…` for messages.
    :param token: a JWT, or None without token authentication.
    :param token_file: a file with the JWT; read at each use, so that a rotated token is used at once.
    :param oauth2: issuer and key of access tokens, instead of a token.
    :param tls_trust_file: PEM of the certificate authorities to trust; the system's when None.
    :param tls_certificate_file: PEM of our certificate for mTLS; needs `tls_key_file`.
    :param cluster_name: the cluster's own name, for a role that may not read it from the broker.
    :param broker_hosts: hosts to which the token may be sent after a redirect, for a role that may not list brokers.
    :param broker_urls: pairs of `host:port` or host of a broker, as brokers list each other, and the admin URL at which
        it is reached from here; or a template of all these URLs with `{host}`. For brokers behind a load balancer.
    :param timeout_seconds: of one HTTP call.
    :param max_connections: HTTP connections to one broker; more than 8 gain nothing (measured).
    """

    name: str
    admin_url: str
    service_url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    oauth2: OAuth2 | None = None
    tls_trust_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    cluster_name: str | None = None
    broker_hosts: tuple[str, ...] = ()
    broker_urls: tuple[tuple[str, str], ...] | str = ()
    timeout_seconds: float = 30.0
    max_connections: int = 8

    def __post_init__(self) -> None:
        if problem := admin_url_problem(self.admin_url):
            raise InvalidRequest(
                f"The admin URL of {self.name!r} {problem}: write it as http://host:port or https://host:port."
            )
        if self.service_url and urlsplit(self.service_url).scheme not in ("pulsar", "pulsar+ssl"):
            raise InvalidRequest(
                f"The service URL {self.service_url!r} of {self.name!r} is not usable: "
                "write it as pulsar://host:port or pulsar+ssl://host:port."
            )
        for url in self._broker_urls():
            if problem := admin_url_problem(url.replace(_HOST, "host")):
                raise InvalidRequest(
                    f'An address in "broker_urls" of {self.name!r} {problem}: write it as https://host:port.'
                )

    def _broker_urls(self) -> tuple[str, ...]:
        return (self.broker_urls,) if isinstance(self.broker_urls, str) else tuple(url for _, url in self.broker_urls)

    def broker_url(self, broker: str) -> str | None:
        """The admin URL of a broker (`host:port`) by `broker_urls`; None if it names none."""
        host = urlsplit(f"//{broker}").hostname or ""
        if isinstance(self.broker_urls, str):
            return self.broker_urls.replace(_HOST, host)
        # Brokers list each other by plain ports and redirect to TLS ports: a host with one broker is enough.
        urls = [url for name, url in self.broker_urls if urlsplit(f"//{name}").hostname == host]
        return dict(self.broker_urls).get(broker) or (urls[0] if len(urls) == 1 else None)

    def is_of_broker(self, host: str) -> bool:
        """Whether a host is one of `broker_urls`, so that it gets our credentials."""
        patterns = (str(urlsplit(url).hostname) for url in self._broker_urls())
        return any(re.fullmatch(re.escape(pattern).replace(re.escape(_HOST), ".+"), host) for pattern in patterns)

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
        """Its addresses for the brokers of other clusters, as a cluster's data: those of this connection."""
        service_url = self.require_service_url()
        if not self.admin_url.startswith("https:"):
            return {"serviceUrl": self.admin_url, "brokerServiceUrl": service_url}
        trust = {"brokerClientTrustCertsFilePath": self.tls_trust_file} if self.tls_trust_file else {}
        addresses = {"serviceUrlTls": self.admin_url, "brokerServiceUrlTls": service_url}
        return {**addresses, "brokerClientTlsEnabled": True, **trust}


_HOST = "{host}"
UNSAFE_URL = "has credentials or a query, which other users may read"


def admin_url_problem(url: str) -> str:
    """Why an admin URL cannot be used; empty if it can. A URL that may contain a secret is not repeated."""
    if any(sign in url for sign in "@?#"):
        return UNSAFE_URL
    if "," in url:
        return f"names several hosts, {url!r}; one of them is enough, since brokers redirect to each other"
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.scheme not in ("http", "https") or parts.port == 0:
            return f"is not usable, {url!r}"
    except ValueError:
        return "has an invalid host or port"
    if parts.path.startswith(("/admin", "/lookup")):
        return f"has a path, {url!r}, which the calls add themselves"
    return ""


_EXTRAS = ("token_file", "tls_trust_file", "tls_certificate_file", "tls_key_file", "service_url", "cluster_name")
EXTRAS: tuple[str, ...] = (
    *_EXTRAS,
    *("token", "broker_hosts", "broker_urls", "timeout_seconds", "max_connections"),
    *(f"oauth2_{name}" for name in OAuth2.__slots__),
)
"""Every extra of a connection."""
_JSON_EXTRA = "__extra__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFields:
    """A connection of any type: host = admin URL, password or extra `token` = JWT, the rest in the extras."""

    conn_id: str
    host: str | None
    schema: str | None = None
    port: int | None = None
    password: str | None = field(default=None, repr=False)
    extra: JsonObject = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, conn_id: str, text: str) -> Self:
        """Parse the value of `AIRFLOW_CONN_…`, JSON or URI as Airflow reads them; anything else is `InvalidRequest`.

        The text contains secrets, so no message quotes it.
        """
        try:
            fields = _from_json(text) if text.lstrip().startswith("{") else _from_uri(text.strip())
            return cls(conn_id=conn_id, **fields)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(
                f"Connection {conn_id!r} cannot be read: write it as JSON, "
                '{"host": "http://host:port", "password": "<token>", "extra": {…}}, or as one of Airflow\'s URIs.'
            ) from error

    @property
    def token(self) -> str | None:
        """The JWT, or None without one."""
        return self.password or self.extra.get("token")

    def cluster(self) -> ClusterConnection:
        """The connection to the cluster; an invalid field is `InvalidRequest`."""
        self._refuse_unknown_extras()
        if not self.host:
            raise InvalidRequest(
                f"Connection {self.conn_id!r} has no host: write the admin URL there, http://host:port."
            )
        oauth2 = self._oauth2()
        return ClusterConnection(
            name=self.conn_id,
            admin_url=self._admin_url(self.host.rstrip("/")),
            token=None if oauth2 else self.token,
            oauth2=oauth2,
            **{key: self.extra[key] for key in _EXTRAS if self.extra.get(key)},
            broker_hosts=tuple(filter(None, map(str.strip, str(self.extra.get("broker_hosts") or "").split(",")))),
            broker_urls=self._broker_urls(),
            timeout_seconds=self._number("timeout_seconds", 30.0),
            max_connections=int(self._number("max_connections", 8)),
        )

    def _refuse_unknown_extras(self) -> None:
        for name in sorted(set(self.extra) - set(EXTRAS)):
            hint = did_you_mean(name, EXTRAS, f"known are {', '.join(EXTRAS)}.")
            raise InvalidRequest(f"Extra {name!r} of connection {self.conn_id!r} is unknown: {hint}")

    def _broker_urls(self) -> tuple[tuple[str, str], ...] | str:
        """A JSON object, or the text of one, or a template."""
        value = self.extra.get("broker_urls") or {}
        try:
            urls = json.loads(value) if isinstance(value, str) and value.lstrip().startswith('{"') else value
        except ValueError as error:
            raise self._not_broker_urls() from error
        if isinstance(urls, str) and _HOST in urls:
            return urls
        if not isinstance(urls, dict) or not all(isinstance(url, str) for url in urls.values()):
            raise self._not_broker_urls()
        return tuple(urls.items())

    def _not_broker_urls(self) -> InvalidRequest:
        return InvalidRequest(
            f"Extra 'broker_urls' of connection {self.conn_id!r} is neither a JSON object of brokers and URLs nor a "
            'template with {host}: write {"broker-0.internal:8080": "https://broker-0.example:8443"} or '
            "https://{host}.example:8443."
        )

    def _oauth2(self) -> OAuth2 | None:
        fields = {name: self.extra.get(f"oauth2_{name}") for name in OAuth2.__slots__}
        if fields["client_id"] and not fields["client_secret"]:
            fields["client_secret"] = self.password
        return OAuth2.from_fields(fields, connection_name=self.conn_id)

    def _admin_url(self, host: str) -> str:
        if "://" not in host:
            host = f"{self.schema or 'http'}://{host}"
        return f"{host}:{self.port}" if self.port else host

    def _number(self, key: str, default: float) -> float:
        value = self.extra.get(key, default)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(
                f"Extra {key!r} of connection {self.conn_id!r} must be a number, not {value!r}."
            ) from error


def _from_json(text: str) -> JsonObject:
    document = json.loads(text)
    extra = document.get("extra") or {}
    return {
        "host": document.get("host"),
        "schema": document.get("schema"),
        "port": int(document["port"]) if document.get("port") else None,
        "password": document.get("password"),
        "extra": _object(json.loads(extra) if isinstance(extra, str) else extra),
    }


def _from_uri(text: str) -> JsonObject:
    """`type://login:password@host:port/schema?extra=…`; the host may have a protocol: `type://https://…`."""
    kind, separator, rest = text.partition("://")
    if not kind or not separator:
        raise ValueError
    nested = "://" in rest.partition("?")[0]
    parts = urlsplit(rest if nested else f"//{rest}")
    if nested and not parts.scheme:
        raise ValueError
    bracketed = parts.netloc.rpartition("@")[2].startswith("[")
    # The host may be a quoted URL, which `parts.hostname` would convert to lower case.
    host = parts.hostname if bracketed else unquote(parts.netloc.rpartition("@")[2].partition(":")[0])
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "host": f"{parts.scheme}://{host}" if nested and host else host,
        "schema": unquote(parts.path[1:]) or None,
        "port": parts.port,
        "password": unquote(parts.password) if parts.password else None,
        "extra": _object(json.loads(query[_JSON_EXTRA])) if _JSON_EXTRA in query else query,
    }


def _object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError
    return value
