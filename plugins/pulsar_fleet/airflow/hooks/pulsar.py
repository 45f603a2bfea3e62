"""The hook for the connection type `pulsar`.

The admin client is imported at its first use: DAG files import this module, and the client takes 0.4 s of CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from pulsar_fleet.airflow import connection_form
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.text import counted, listed

if TYPE_CHECKING:
    import pulsar
    from airflow.sdk import Connection

    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.connection_fields import ConnectionFields
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.messages.clients.consume import Process
    from pulsar_fleet.messages.clients.received import ReceivedMessage
    from pulsar_fleet.messages.clients.stream import Subscription


def cluster_connection(conn_id: str) -> ClusterConnection:
    """Read connection `conn_id`, of any type: host = admin URL, password or extra `token` = JWT, other fields: extras.
    With a login the password is that of basic authentication.

    A missing or invalid connection raises `InvalidRequest` with what to do. Secrets are masked in every log.
    """
    if not conn_id:
        raise InvalidRequest("No connection is named: set the id of an Airflow connection of the cluster.")
    return from_airflow(_connection(conn_id))


async def aread_connection(conn_id: str) -> ClusterConnection:
    """The same for triggers, whose event loop must not be blocked; a worker of Airflow 3.1 cannot read so."""
    try:
        return from_airflow(await BaseHook.aget_connection(conn_id))
    except AirflowNotFoundException as error:
        raise InvalidRequest(_missing(conn_id)) from error


def from_airflow(connection: Connection) -> ClusterConnection:
    """The cluster of an Airflow connection; an invalid field raises `InvalidRequest`."""
    return _fields(connection).cluster(lambda link: _fields(_connection(link)))


def _connection(conn_id: str) -> Connection:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise InvalidRequest(_missing(conn_id)) from error


def _fields(connection: Connection) -> ConnectionFields:
    from pulsar_fleet.cluster.connection_fields import ConnectionFields

    fields = ConnectionFields(
        conn_id=connection.conn_id,
        host=connection.host,
        schema=connection.schema,
        port=connection.port,
        login=connection.login,
        password=connection.password,
        extra=connection.extra_dejson,
    )
    for secret in (fields.password, fields.token, fields.extra.get("oauth2_client_secret")):
        if secret:
            mask_secret(secret)
    return fields


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
    """One Pulsar cluster, for your own DAGs: its admin API and its messages, with every way to authenticate of the
    connection.

    :param pulsar_conn_id: the Airflow connection; any connection type works.

    >>> async with PulsarHook("pulsar_blue").admin() as admin:
    ...     await admin.namespaces("acme")
    >>> with PulsarHook("pulsar_blue").message_client() as client:
    ...     client.create_producer("persistent://acme/orders/events").send(b"…")
    """

    conn_name_attr = "pulsar_conn_id"
    default_conn_name = "pulsar_default"
    conn_type = "pulsar"
    hook_name = "Apache Pulsar cluster"

    def __init__(self, pulsar_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.pulsar_conn_id = pulsar_conn_id

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """The form for Airflow 3.1; later releases read the provider's metadata."""
        return connection_form.widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The labels for Airflow 3.1; later releases read the provider's metadata."""
        return connection_form.behaviour()

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

    @contextmanager
    def message_client(self) -> Iterator[pulsar.Client]:
        """A client of pulsar-client with the credentials of the connection; it is closed after the block.

        :raises FleetError: the connection has no broker service URL, or its credentials cannot be read.
        """
        from pulsar_fleet.cluster.message_client import open_client

        client = open_client(self.cluster)
        try:
            yield client
        finally:
            client.close()

    def publish(self, topic: str, messages: Sequence[Any], *, producer_name: str | None = None) -> int:
        """Publish texts, bytes, or objects with `content`, `key` and `properties`; returns their number.

        See `pulsar_fleet.messages.clients.publish`.
        """
        from pulsar_fleet.messages.clients.publish import OutgoingMessage, publish

        outgoing = list(map(OutgoingMessage.of, messages))
        return asyncio.run(publish(self.cluster, topic, outgoing, producer_name=producer_name))

    def consume(self, subscription: Subscription, process: Process, **limits: Any) -> JsonObject:
        """Consume in batches, acknowledged after `process` succeeded; see `pulsar_fleet.messages.clients.consume`."""
        from pulsar_fleet.messages.clients.consume import consume

        return consume(self.cluster, subscription, process, **limits)

    @contextmanager
    def reader(
        self, topic: str, *, start: str = "earliest", wait_seconds: float = 0.0
    ) -> Iterator[Iterator[ReceivedMessage]]:
        """The messages of a topic without a subscription, as an iterator that ends at the end of the topic.

        See `pulsar_fleet.messages.clients.read`.
        """
        from pulsar_fleet.messages.clients.read import open_reader

        with open_reader(self.cluster, topic, start=start, wait_seconds=wait_seconds) as messages:
            yield messages

    def job_environment(self) -> dict[str, str]:
        """Environment variables with the credentials for a Spark job that reads with the data source `pulsar`, and with
        this interpreter. **Holds secrets**: set them in `execute`, since Airflow shows templated fields.
        """
        from pulsar_fleet.messages.credentials import Side, credentials_environment
        from pulsar_fleet.verification.job import interpreter_environment

        return {**interpreter_environment(), **credentials_environment(Side.SOURCE, self.cluster)}

    def test_connection(self) -> tuple[bool, str]:
        """Read version, brokers and name of the cluster, and connect to it for messages (the *Test* button).

        Airflow offers the button when `[core] test_connection` is `Enabled`.
        """
        try:
            return True, asyncio.run(self._describe())
        except FleetError as error:
            return False, str(error)

    async def _describe(self) -> str:
        from pulsar_fleet.cluster.admin.client import AdminClient

        async with AdminClient(self.cluster, retry_seconds=5) as admin:
            version = await admin.version()
            brokers = await admin.brokers()
            name = await admin.cluster_name()
        messages = await asyncio.to_thread(self._describe_messages)
        return f"Cluster {name!r}, Pulsar {version}, {counted(len(brokers), 'broker')}; {messages}."

    def _describe_messages(self) -> str:
        if not self.cluster.service_url:
            return "no broker service URL, so messages can be neither published nor consumed"
        from pulsar_fleet.messages.clients.reach import require_reachable

        require_reachable(self.cluster)
        return f"messages through {self.cluster.service_url}"
