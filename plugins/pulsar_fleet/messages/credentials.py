"""The connection of a cluster in a process without Airflow: addresses are arguments, credentials come from the
environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.connection_fields import ConnectionFields
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_fleet.cluster.text import listed

CLUSTERS_VARIABLE = "PULSAR_FLEET_CLUSTERS"
_DEFAULT = ".config/pulsar-fleet/clusters.yaml"
_REFERENCE = re.compile(r"^\$\{(\w+)\}$")
_KEYS = ("host", "port", "login", "password", "extra")
_SECRETS = ("password", "extra.token", "extra.oauth2_client_secret")


def clusters_file(environment: Mapping[str, str]) -> Path:
    """The file that `PULSAR_FLEET_CLUSTERS` names, or the one in the user's home; it need not exist."""
    named = environment.get(CLUSTERS_VARIABLE)
    return Path(named) if named else Path(environment.get("HOME") or "/") / _DEFAULT


def read_clusters(environment: Mapping[str, str]) -> dict[str, JsonObject]:
    """Id of each connection of the file → its fields, whose secrets are still references; empty without a file.

    :raises InvalidRequest: the file cannot be read, is no YAML, or holds a secret itself.
    """
    file = clusters_file(environment)
    try:
        text = file.read_text()
    except FileNotFoundError as error:
        if environment.get(CLUSTERS_VARIABLE):
            raise InvalidRequest(f"{CLUSTERS_VARIABLE} names {str(file)!r}, which does not exist.") from error
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The file of clusters {str(file)!r} cannot be read: {error}.") from error
    clusters = _parsed(text, file)
    for name, fields in clusters.items():
        _refuse_what_is_wrong(name, fields, file)
    return clusters


def fields_of(name: str, clusters: Mapping[str, JsonObject], environment: Mapping[str, str]) -> ConnectionFields:
    """The connection of a cluster of the file, with its secrets from the environment."""

    def secret(text: Any) -> Any:
        match = _REFERENCE.match(text) if isinstance(text, str) else None
        if match is None:
            return text
        if match[1] not in environment:
            raise InvalidRequest(
                f"The cluster {name!r} of the file takes a secret from {match[1]!r}: set that variable."
            )
        return environment[match[1]]

    fields: dict[str, Any] = dict(clusters[name])
    fields["extra"] = {key: secret(value) for key, value in (fields.get("extra") or {}).items()}
    return ConnectionFields(conn_id=name, **{"host": None, **{key: secret(value) for key, value in fields.items()}})


def _parsed(text: str, file: Path) -> dict[str, JsonObject]:
    # Most processes read no file, and the library takes 50 ms to import.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = json.loads(json.dumps(YAML(typ="safe").load(text) or {}))
    except (YAMLError, TypeError, ValueError) as error:
        # The library quotes the line, which may hold a secret.
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InvalidRequest(f"The file of clusters {str(file)!r} is no YAML{where}.") from error
    if not isinstance(document, dict) or not all(isinstance(fields, dict) for fields in document.values()):
        raise InvalidRequest(
            f"The file of clusters {str(file)!r} is no mapping of names to connections: write `blue:` and below it "
            "`host: http://host:port`."
        )
    return document


def _refuse_what_is_wrong(name: str, fields: JsonObject, file: Path) -> None:
    for key in fields.keys() - set(_KEYS):
        raise InvalidRequest(
            f"The cluster {name!r} in {str(file)!r} has the unknown key {key!r}: known are {', '.join(_KEYS)}."
        )
    extra = fields.get("extra") or {}
    if not isinstance(extra, dict):
        raise InvalidRequest(f"The extra of cluster {name!r} in {str(file)!r} is no mapping of names to values.")
    values = {**fields, **{f"extra.{key}": value for key, value in extra.items()}}
    for key in _SECRETS:
        if values.get(key) and not _REFERENCE.match(str(values[key])):
            raise InvalidRequest(
                f"The cluster {name!r} in {str(file)!r} has its {key} in the file: write the name of an environment "
                "variable there, such as ${BLUE_TOKEN}, or the extra token_file."
            )


CONNECTION_PREFIX = "AIRFLOW_CONN_"
DIGEST_KEY_VARIABLE = "PULSAR_FLEET_DIGEST_SECRET"
"""The variable with the key of keyed digests; Spark masks values whose name contains "secret"."""


class Side(StrEnum):
    """The two clusters of a comparison."""

    SOURCE = "source"
    TARGET = "target"


_VARIABLES = {
    # Spark masks values whose name contains "secret" in its logs and pages.
    "token": "TOKEN_SECRET",
    "token_file": "TOKEN_FILE",
    "listener_name": "LISTENER_NAME",
    "user": "USER",
    "password": "PASSWORD_SECRET",
    "tls_trust_file": "TLS_TRUST_FILE",
    "tls_certificate_file": "TLS_CERTIFICATE_FILE",
    "tls_key_file": "TLS_KEY_FILE",
}
_OAUTH2 = {name: f"OAUTH2_{name.upper()}" for name in OAuth2.__slots__}
_SUFFIXES = (*_VARIABLES.values(), *_OAUTH2.values())


def _variable(side: Side, suffix: str) -> str:
    return f"PULSAR_FLEET_{side.upper()}_{suffix}"


def credentials_environment(side: Side, connection: ClusterConnection) -> dict[str, str]:
    """The environment variables that pass the credentials of `connection` to another process. **Holds secrets.**"""
    values = [(suffix, getattr(connection, name)) for name, suffix in _VARIABLES.items()]
    if connection.oauth2:
        values += [(suffix, getattr(connection.oauth2, name)) for name, suffix in _OAUTH2.items()]
    return {_variable(side, suffix): value for suffix, value in values if value}


def credentials_in_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of this process with credentials of both clusters or a digest key. **Holds secrets.**"""
    names = (DIGEST_KEY_VARIABLE, *(_variable(side, suffix) for side in Side for suffix in _SUFFIXES))
    return {name: environment[name] for name in names if environment.get(name)}


def digest_key(environment: Mapping[str, str] = os.environ) -> bytes:
    """The key of keyed digests, 32 bytes, the SHA-256 of the secret; `InvalidRequest` if the secret is not set."""
    secret = environment.get(DIGEST_KEY_VARIABLE)
    if not secret:
        raise InvalidRequest(
            f"Keyed digests need a secret: set {DIGEST_KEY_VARIABLE} for the worker and the executors, or turn keyed "
            "digests off."
        )
    return hashlib.sha256(secret.encode()).digest()


def connection_from_environment(
    side: Side, *, name: str, admin_url: str, service_url: str | None, environment: Mapping[str, str] = os.environ
) -> ClusterConnection:
    """The connection of one cluster, with the variables of `credentials_environment`."""

    def fields(variables: Mapping[str, str]) -> dict[str, Any]:
        return {field: environment.get(_variable(side, suffix)) or None for field, suffix in variables.items()}

    oauth2 = OAuth2.from_fields(fields(_OAUTH2), connection_name=name)
    return ClusterConnection(
        name=name, admin_url=admin_url, service_url=service_url, oauth2=oauth2, **fields(_VARIABLES)
    )


def service_url_from_environment(side: Side, environment: Mapping[str, str] = os.environ) -> str | None:
    """The broker service URL of one cluster; None if it is not set."""
    return environment.get(_variable(side, "SERVICE_URL")) or None


def defined_connections(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The ids of the Airflow connections that environment variables define."""
    return tuple(
        sorted(name[len(CONNECTION_PREFIX) :].lower() for name in environment if name.startswith(CONNECTION_PREFIX))
    )


def named_connection(conn_id: str, environment: Mapping[str, str] = os.environ) -> ClusterConnection:
    """The cluster of a connection that an environment variable or the file of clusters defines; without Airflow.

    The environment comes first, so that a shell can replace a connection of the file.
    """
    return _fields(conn_id, environment).cluster(lambda link: _fields(link, environment))


def _fields(conn_id: str, environment: Mapping[str, str]) -> ConnectionFields:
    text = environment.get(f"{CONNECTION_PREFIX}{conn_id.upper()}")
    if text:
        return ConnectionFields.parse(conn_id, text)
    clusters = read_clusters(environment)
    if conn_id in clusters:
        return fields_of(conn_id, clusters, environment)
    defined = listed(defined_connections(environment), 10)
    raise InvalidRequest(
        f"Connection {conn_id!r} does not exist. The environment defines: {defined}; the file of clusters: "
        f"{listed(sorted(clusters), 10)}. Set {CONNECTION_PREFIX}{conn_id.upper()}, add it to "
        f"{clusters_file(environment)}, or name the cluster by its admin URL, http://host:port."
    )
