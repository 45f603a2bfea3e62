"""The hook for the connection type `pulsar`.

The admin client is imported at its first use: DAG files import this module, and the client takes 0.4 s of CPU time.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.text import counted, listed

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection


def cluster_connection(conn_id: str) -> ClusterConnection:
    """Read connection `conn_id`, of any type: host = admin URL, password or extra `token` = JWT, other fields: extras.

    A missing or invalid connection raises `InvalidRequest` with what to do. Secrets are masked in every log.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise InvalidRequest(_missing(conn_id)) from error
    return from_airflow(connection)


def from_airflow(connection: Connection) -> ClusterConnection:
    """The cluster of an Airflow connection; an invalid field raises `InvalidRequest`."""
    from pulsar_fleet.cluster.connection import ConnectionFields

    fields = ConnectionFields(
        conn_id=connection.conn_id,
        host=connection.host,
        schema=connection.schema,
        port=connection.port,
        password=connection.password,
        extra=connection.extra_dejson,
    )
    for secret in (fields.password, fields.token, fields.extra.get("oauth2_client_secret")):
        if secret:
            mask_secret(secret)
    return fields.cluster()


def _missing(conn_id: str) -> str:
    from pulsar_fleet.messages.credentials import defined_connections

    # A task can read connections by name only, so the message cannot list those in Airflow's database.
    defined = defined_connections()
    known = f" Defined by environment: {listed(defined, 10)}." if defined else ""
    return (
        f"Connection {conn_id!r} does not exist.{known} "
        "Create it under Admin → Connections (type Apache Pulsar cluster), or correct the run's configuration."
    )


class PulsarHook(BaseHook):
    """One Pulsar cluster, for your own DAGs.

    :param pulsar_conn_id: the Airflow connection; any connection type works.

    >>> async with PulsarHook("pulsar_blue").admin() as admin:
    ...     await admin.namespaces("acme")
    """

    conn_name_attr = "pulsar_conn_id"
    default_conn_name = "pulsar_default"
    conn_type = "pulsar"
    hook_name = "Apache Pulsar cluster"

    def __init__(self, pulsar_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.pulsar_conn_id = pulsar_conn_id

    @cached_property
    def cluster(self) -> ClusterConnection:
        """The connection to the cluster; read once."""
        return cluster_connection(self.pulsar_conn_id)

    def admin(self) -> AdminClient:
        """A new client of the admin API; use it with `async with`."""
        from pulsar_fleet.cluster.admin.client import AdminClient

        return AdminClient(self.cluster)

    def get_conn(self) -> AdminClient:
        """Same as `admin`, by the name that Airflow expects."""
        return self.admin()

    def test_connection(self) -> tuple[bool, str]:
        """Read version, brokers and name of the cluster (the Test button of the UI)."""
        try:
            return True, asyncio.run(self._describe())
        except FleetError as error:
            return False, str(error)

    async def _describe(self) -> str:
        from pulsar_fleet.cluster.admin.client import AdminClient

        async with AdminClient(self.cluster, retry_seconds=5) as admin:
            version = await admin.version()
            brokers = await admin.brokers()
            return f"Cluster {await admin.cluster_name()!r}, Pulsar {version}, {counted(len(brokers), 'broker')}."
