"""Clients of the broker's binary protocol, with the credentials and trusted certificates of a connection."""

from __future__ import annotations

import atexit
import logging
import os
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from pulsar_fleet.cluster.connection import ClusterConnection, tls_context
from pulsar_fleet.cluster.errors import FleetError

if TYPE_CHECKING:
    import pulsar
    from pulsar.asyncio import Client as AsyncioClient


log = logging.getLogger(__name__)


class _ClientLog:
    """The log of all clients of this process: pulsar-client uses the logger of its first client for all."""

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir()) / f"pulsar-client-{uuid.uuid4().hex}.log"
        self._stream: TextIO | None = None
        self._reading = Lock()

    def open(self) -> None:
        """Open the file that the first client created and unlink it, so that the process leaves no file behind."""
        with self._reading, suppress(OSError):
            if self._stream is None:
                self._stream = self.path.open()
                atexit.register(self._stream.close)
            self.path.unlink()

    def read(self) -> None:
        """Log the lines that were written since the last call."""
        with self._reading:
            lines = self._stream.readlines() if self._stream else []
        for line in lines:
            log.error("pulsar-client: %s", line.rstrip())


_logs: dict[int, _ClientLog] = {}


def _own_log() -> _ClientLog:
    """One log per process: a forked process inherits the log of its parent and must not use it."""
    return _logs.setdefault(os.getpid(), _ClientLog())


def new_client(service_url: str, **options: Any) -> pulsar.Client:
    """A client whose errors are written to our log; `options` are those of `pulsar.Client`."""
    import pulsar

    return _with_log(pulsar.Client, service_url, options)


_AnyClient = TypeVar("_AnyClient")


def _with_log(kind: Callable[..., _AnyClient], service_url: str, options: dict[str, Any]) -> _AnyClient:
    import pulsar

    own = _own_log()
    client = kind(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(own.path)), **options)
    own.open()
    own.read()
    return client


OPERATION_TIMEOUT_SECONDS = 30


def open_client(
    connection: ClusterConnection, operation_timeout_seconds: int = OPERATION_TIMEOUT_SECONDS
) -> pulsar.Client:
    """A client with the connection's credentials and trusted certificates; it verifies host names. Close it.

    :raises FleetError: the token or a file of TLS cannot be read, see `ClusterConnection.read_token`, `tls_context`.
    """
    return new_client(connection.require_service_url(), **_options(connection, operation_timeout_seconds))


def open_asyncio_client(connection: ClusterConnection) -> AsyncioClient:
    """The same for an event loop: no call of it blocks, and no consumer of it needs a thread."""
    from pulsar.asyncio import Client

    return _with_log(Client, connection.require_service_url(), _options(connection, OPERATION_TIMEOUT_SECONDS))


def _options(connection: ClusterConnection, operation_timeout_seconds: int) -> dict[str, Any]:
    return {
        "operation_timeout_seconds": operation_timeout_seconds,
        "listener_name": connection.listener_name,
        **security_options(connection),
    }


def security_options(connection: ClusterConnection) -> dict[str, Any]:
    """The options of `pulsar.Client` for credentials and TLS of a connection; the errors are those of `open_client`."""
    if connection.require_service_url().startswith("pulsar+ssl:"):
        tls_context(connection)  # The client would say of a missing file that the connection failed.
    return {
        "authentication": _authentication(connection),
        "tls_trust_certs_file_path": connection.tls_trust_file,
        "tls_certificate_file_path": connection.tls_certificate_file,
        "tls_private_key_file_path": connection.tls_key_file,
        "tls_validate_hostname": True,
    }


def _authentication(connection: ClusterConnection) -> pulsar.Authentication | None:
    import pulsar

    if token := connection.read_token():
        return pulsar.AuthenticationToken(_Tokens(connection, token))
    if connection.user:
        return pulsar.AuthenticationBasic(connection.user, connection.password)
    if connection.tls_certificate_file:
        return pulsar.AuthenticationTLS(connection.tls_certificate_file, connection.tls_key_file)
    return None


class _Tokens:
    """Supplies the token at each connect; an exception there would end the process, so it reuses the last token."""

    def __init__(self, connection: ClusterConnection, first: str) -> None:
        self._connection = connection
        self._last = first

    def __call__(self) -> str:
        try:
            self._last = self._connection.read_token() or self._last
        except FleetError as error:
            log.warning("%s: connecting with the last token: %s", self._connection.name, error)
        return self._last
