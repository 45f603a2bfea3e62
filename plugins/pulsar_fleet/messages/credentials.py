"""The connection of a cluster in a process without Airflow: addresses are arguments, credentials come from the
environment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.connection_fields import ConnectionFields
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.oauth2 import OAuth2
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.messages.clusters_file import clusters_file, fields_of, read_clusters

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
