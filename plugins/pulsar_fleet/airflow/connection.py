"""From an Airflow connection to a ClusterConnection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Rejected

if TYPE_CHECKING:
    from airflow.sdk import Connection

ENVIRONMENT_PREFIX = "AIRFLOW_CONN_"
EXTRAS = ("token_file", "tls_trust_file", "tls_certificate_file", "tls_key_file", "service_url")


def cluster_connection(conn_id: str) -> ClusterConnection:
    """Read connection `conn_id`, of any type: host = admin URL, password or extra `token` = JWT, the rest in extras.

    A connection that does not exist or cannot be used is `Rejected` with what to do; secrets are masked in every log.
    """
    try:
        found = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise Rejected(_missing(conn_id)) from error
    return from_airflow(found)


def from_airflow(found: Connection) -> ClusterConnection:
    """The cluster that an Airflow connection describes; a field that cannot be used is `Rejected`."""
    extra: dict[str, Any] = found.extra_dejson
    if not found.host:
        raise Rejected(f"Connection {found.conn_id!r} has no host: write the admin URL there, http://host:port.")
    token = found.password or extra.get("token")
    if token:
        mask_secret(token)
    return ClusterConnection(
        name=found.conn_id,
        admin_url=_admin_url(found),
        token=token,
        **{key: extra[key] for key in EXTRAS if extra.get(key)},
        timeout_seconds=_number(found.conn_id, extra, "timeout_seconds", 30.0),
        max_connections=int(_number(found.conn_id, extra, "max_connections", 8)),
    )


def _admin_url(found: Connection) -> str:
    host = str(found.host).rstrip("/")
    if "://" not in host:
        host = f"{found.schema or 'http'}://{host}"
    return f"{host}:{found.port}" if found.port else host


def _number(conn_id: str, extra: dict[str, Any], key: str, default: float) -> float:
    value = extra.get(key, default)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise Rejected(f"Extra {key!r} of connection {conn_id!r} must be a number, not {value!r}.") from error


def _missing(conn_id: str) -> str:
    # A task may ask for a connection by name only, so of those in Airflow's database no list can be given.
    known = sorted(
        name[len(ENVIRONMENT_PREFIX) :].lower() for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)
    )
    listed = f" Defined by environment: {', '.join(known)}." if known else ""
    return (
        f"Connection {conn_id!r} does not exist.{listed} "
        "Create it under Admin → Connections (type Apache Pulsar cluster), or correct the run's configuration."
    )
