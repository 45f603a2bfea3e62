"""The hook behind connection type `pulsar`."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection, ConnectionFields
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.messages.credentials import defined_connections

if TYPE_CHECKING:
    from airflow.sdk import Connection


def cluster_connection(conn_id: str) -> ClusterConnection:
    """Read connection `conn_id`, of any type: host = admin URL, password or extra `token` = JWT, the rest in extras.

    A connection that does not exist or cannot be used is `InvalidRequest` with what to do; secrets are masked in
    every log.
    """
    try:
        found = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise InvalidRequest(_missing(conn_id)) from error
    return from_airflow(found)


def from_airflow(found: Connection) -> ClusterConnection:
    """The cluster that an Airflow connection describes; a field that cannot be used is `InvalidRequest`."""
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


class PulsarHook(BaseHook):
    """One Pulsar cluster, for DAGs of your own.

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
        """Where the cluster answers; read once."""
        return cluster_connection(self.pulsar_conn_id)

    def admin(self) -> AdminClient:
        """A new client for the admin API; use it with `async with`."""
        return AdminClient(self.cluster)

    def get_conn(self) -> AdminClient:
        """Same as `admin`, under the name that Airflow expects."""
        return self.admin()

    def test_connection(self) -> tuple[bool, str]:
        """Whether the cluster answers, which version it is and whether we may administer it (the UI's Test button)."""
        try:
            return True, asyncio.run(self._describe())
        except FleetError as error:
            return False, str(error)

    async def _describe(self) -> str:
        async with AdminClient(self.cluster, retry_seconds=5) as admin:
            version = await admin.version()
            brokers = await admin.brokers()
            return f"Cluster {await admin.cluster_name()!r}, Pulsar {version}, {len(brokers)} broker(s)."
