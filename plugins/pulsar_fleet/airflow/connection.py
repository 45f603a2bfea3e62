"""From an Airflow connection to a ClusterConnection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.connection_fields import ConnectionFields
from pulsar_fleet.cluster.errors import Rejected
from pulsar_fleet.reading.environment import defined_connections

if TYPE_CHECKING:
    from airflow.sdk import Connection


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
    fields = ConnectionFields(
        conn_id=found.conn_id,
        host=found.host,
        schema=found.schema,
        port=found.port,
        password=found.password,
        extra=found.extra_dejson,
    )
    if fields.token:
        mask_secret(fields.token)
    return fields.cluster()


def _missing(conn_id: str) -> str:
    # A task may ask for a connection by name only, so of those in Airflow's database no list can be given.
    known = defined_connections()
    listed = f" Defined by environment: {', '.join(known)}." if known else ""
    return (
        f"Connection {conn_id!r} does not exist.{listed} "
        "Create it under Admin → Connections (type Apache Pulsar cluster), or correct the run's configuration."
    )
