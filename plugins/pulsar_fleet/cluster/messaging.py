"""Clients of the broker's binary protocol, with a connection's credentials and trust."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.client_log import new_client
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError

if TYPE_CHECKING:
    import pulsar

log = logging.getLogger(__name__)

OPERATION_TIMEOUT_SECONDS = 30


def open_client(
    connection: ClusterConnection, operation_timeout_seconds: int = OPERATION_TIMEOUT_SECONDS
) -> pulsar.Client:
    """A client with the connection's credentials and trust; host names in certificates are checked. Close it.

    A first token that cannot be had is a `FleetError`, as of `ClusterConnection.read_token`.
    """
    return new_client(
        connection.require_service_url(),
        authentication=_authentication(connection),
        operation_timeout_seconds=operation_timeout_seconds,
        tls_trust_certs_file_path=connection.tls_trust_file,
        tls_validate_hostname=True,
    )


def _authentication(connection: ClusterConnection) -> pulsar.Authentication | None:
    import pulsar

    if connection.tls_certificate_file:
        return pulsar.AuthenticationTLS(connection.tls_certificate_file, connection.tls_key_file)
    token = connection.read_token()
    return pulsar.AuthenticationToken(_Tokens(connection, token)) if token else None


class _Tokens:
    """What the client calls to connect; an error there would end the process, so the last token is shown again."""

    def __init__(self, connection: ClusterConnection, first: str) -> None:
        self._connection = connection
        self._last = first

    def __call__(self) -> str:
        try:
            self._last = self._connection.read_token() or self._last
        except FleetError as error:
            log.warning("%s: connecting with the last token: %s", self._connection.name, error)
        return self._last
