"""The hook behind connection type `pulsar`."""

from __future__ import annotations

import asyncio
from functools import cached_property

from airflow.sdk import BaseHook

from pulsar_fleet.airflow.connection import cluster_connection
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError


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
