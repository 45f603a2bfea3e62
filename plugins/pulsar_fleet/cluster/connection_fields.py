"""The fields of an Airflow connection to a cluster: validated, and read from a variable as Airflow reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pulsar_fleet.cluster.connection import HOST, ClusterConnection, ReplicationAuth, user_problem
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_fleet.cluster.text import did_you_mean

_FILES = ("token_file", "tls_trust_file", "tls_certificate_file", "tls_key_file")
_EXTRAS = (*_FILES, "service_url", "listener_name", "cluster_name")
EXTRAS: tuple[str, ...] = (
    *_EXTRAS,
    *("token", "broker_hosts", "broker_urls", "client_urls", "replication_auth", "timeout_seconds", "max_connections"),
    *(f"oauth2_{name}" for name in OAuth2.__slots__),
)
"""Every extra of a connection."""
LINK_EXTRAS: tuple[str, ...] = (*_FILES, "token", *(f"oauth2_{name}" for name in OAuth2.__slots__))
"""Every extra of a connection that `replication_auth` names."""
_JSON_EXTRA = "__extra__"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFields:
    """A connection of any type: host = admin URL, password or extra `token` = JWT, the rest in the extras.

    With a login the password is that of basic authentication.
    """

    conn_id: str
    host: str | None
    schema: str | None = None
    port: int | None = None
    login: str | None = None
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
        return (None if self.login else self.password) or self.extra.get("token")

    def cluster(self, find: Callable[[str], ConnectionFields] | None = None) -> ClusterConnection:
        """The connection to the cluster; an invalid field is `InvalidRequest`.

        :param find: reads the connection that `replication_auth` names.
        """
        self._refuse_unknown_extras()
        if not self.host:
            raise InvalidRequest(
                f"Connection {self.conn_id!r} has no host: write the admin URL there, http://host:port."
            )
        oauth2, link = self._oauth2(), str(self.extra.get("replication_auth") or "")
        return ClusterConnection(
            name=self.conn_id,
            admin_url=self._admin_url(self.host.rstrip("/")),
            token=None if oauth2 else self.token,
            oauth2=oauth2,
            **self._user(),
            **{key: self.extra[key] for key in _EXTRAS if self.extra.get(key)},
            broker_hosts=tuple(filter(None, map(str.strip, str(self.extra.get("broker_hosts") or "").split(",")))),
            broker_urls=self._broker_urls(),
            client_urls=self._client_urls(),
            replication_auth=find(link).link() if find and link else None,
            timeout_seconds=self._number("timeout_seconds", 30.0),
            max_connections=int(self._number("max_connections", 8)),
        )

    def link(self) -> ReplicationAuth:
        """The credentials with which brokers of other clusters replicate; every path is one on these brokers.

        Its host is not used. An invalid field is `InvalidRequest`.
        """
        self._refuse_unknown_extras(LINK_EXTRAS)
        if bool(self.extra.get("tls_certificate_file")) is not bool(self.extra.get("tls_key_file")):
            raise InvalidRequest(
                f"Connection {self.conn_id!r} has a client certificate without its key, or the key without the "
                "certificate: set both tls_certificate_file and tls_key_file."
            )
        oauth2 = self._oauth2()
        if oauth2 and not oauth2.issuer_url:
            raise InvalidRequest(
                f"Connection {self.conn_id!r} has no issuer: brokers do not read it from a key file. Set the extra "
                "oauth2_issuer_url."
            )
        has_token = bool(self.token or self.extra.get("token_file") or oauth2)
        if problem := user_problem(**self._user(), has_token=has_token):
            raise InvalidRequest(f"Connection {self.conn_id!r} {problem}")
        files = {name: self.extra[name] for name in _FILES if self.extra.get(name)}
        return ReplicationAuth(token=None if oauth2 else self.token, oauth2=oauth2, **self._user(), **files)

    def _user(self) -> dict[str, str | None]:
        return {"user": self.login, "password": self.password} if self.login else {"user": None, "password": None}

    def _refuse_unknown_extras(self, known: Sequence[str] = EXTRAS) -> None:
        for name in sorted(set(self.extra) - set(known)):
            hint = did_you_mean(name, known, f"known are {', '.join(known)}.")
            raise InvalidRequest(f"Extra {name!r} of connection {self.conn_id!r} is unknown: {hint}")

    def _broker_urls(self) -> tuple[tuple[str, str], ...] | str:
        """A JSON object, or the text of one, or a template."""
        value = self.extra.get("broker_urls") or {}
        try:
            urls = json.loads(value) if isinstance(value, str) and value.lstrip().startswith('{"') else value
        except ValueError as error:
            raise self._not_broker_urls() from error
        if isinstance(urls, str) and HOST in urls:
            return urls
        if not isinstance(urls, dict) or not all(isinstance(url, str) for url in urls.values()):
            raise self._not_broker_urls()
        return tuple(urls.items())

    def _client_urls(self) -> tuple[str, ...]:
        """A JSON array, or the text of one, or a text with spaces between the addresses."""
        urls = self.extra.get("client_urls") or []
        if isinstance(urls, str):
            try:
                urls = json.loads(urls) if urls.lstrip().startswith("[") else urls.split()
            except ValueError as error:
                raise self._not_client_urls() from error
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            raise self._not_client_urls()
        return tuple(url.rstrip("/") for url in urls)

    def _not_client_urls(self) -> InvalidRequest:
        return InvalidRequest(
            f"Extra 'client_urls' of connection {self.conn_id!r} is no list of addresses: write "
            '["pulsar://host:port", "pulsar+ssl://host:port"].'
        )

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
        return ",".join(f"{part}:{self.port}" for part in host.split(",")) if self.port else host

    def _number(self, key: str, default: float) -> float:
        value = self.extra.get(key)
        if value in (None, ""):  # The form stores fields that were left empty too.
            return default
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
        "login": document.get("login"),
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
        "login": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "extra": _object(json.loads(query[_JSON_EXTRA])) if _JSON_EXTRA in query else query,
    }


def _object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError
    return value
