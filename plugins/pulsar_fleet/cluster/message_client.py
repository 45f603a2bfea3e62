"""Clients of the broker's binary protocol, with the credentials and trusted certificates of a connection."""

from __future__ import annotations

import atexit
import logging
import os
import re
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import Position

if TYPE_CHECKING:
    import pulsar


log = logging.getLogger(__name__)

_ORPHAN = re.compile(r"Received an? (?:uncached chunk|chunk whose chunk id is invalid).*messageId: \((\d+),\s*(\d+)")
_NOT_A_TOPIC = "a//b"


class _ClientLog:
    """The log of all clients of this process: pulsar-client uses the logger of its first client for all."""

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir()) / f"pulsar-client-{uuid.uuid4().hex}.log"
        self.orphans: list[list[Position]] = []
        self._stream: TextIO | None = None
        self._reading = Lock()

    def open(self) -> None:
        """Open the file that the first client created and unlink it, so that the process leaves no file behind."""
        with self._reading, suppress(OSError):
            if self._stream is None:
                self._stream = self.path.open()
                atexit.register(self._stream.close)
            self.path.unlink()

    def read(self) -> int:
        """Process the lines that were logged since the last call; returns their number."""
        with self._reading:
            lines = self._stream.readlines() if self._stream else []
        for line in lines:
            if match := _ORPHAN.search(line):
                for positions in self.orphans:
                    positions.append(Position(int(match[1]), int(match[2])))
            elif _NOT_A_TOPIC not in line:
                log.error("pulsar-client: %s", line.rstrip())
        return len(lines)


_logs: dict[int, _ClientLog] = {}


def _own_log() -> _ClientLog:
    """One log per process: a forked process inherits the log of its parent and must not use it."""
    return _logs.setdefault(os.getpid(), _ClientLog())


def new_client(service_url: str, **options: Any) -> pulsar.Client:
    """A client whose errors are written to our log; `options` are those of `pulsar.Client`."""
    import pulsar

    own = _own_log()
    client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(own.path)), **options)
    own.open()
    return client


def is_logged(client: pulsar.Client) -> bool:
    """Whether errors are written to our log, and not to the logger of an earlier client of this process."""
    import pulsar

    own = _own_log()
    own.read()
    with suppress(pulsar.PulsarException):
        client.create_reader(_NOT_A_TOPIC, pulsar.MessageId.earliest)
    return own.read() > 0


class OrphanedChunks:
    """Chunks that a reader of this process discarded, because it did not read their first chunk."""

    def __init__(self, positions: list[Position]) -> None:
        self._positions = positions

    def between(self, first: Position, last: Position) -> bool:
        """Whether a discarded chunk lies in a range, both ends included."""
        _own_log().read()
        return any(first <= position <= last for position in self._positions)


@contextmanager
def orphaned_chunks() -> Iterator[OrphanedChunks]:
    """The chunks that are discarded from now on; the log names no topic, so compare their ledgers."""
    own, positions = _own_log(), list[Position]()
    own.read()
    own.orphans.append(positions)
    try:
        yield OrphanedChunks(positions)
    finally:
        own.orphans = [other for other in own.orphans if other is not positions]


OPERATION_TIMEOUT_SECONDS = 30


def open_client(
    connection: ClusterConnection, operation_timeout_seconds: int = OPERATION_TIMEOUT_SECONDS
) -> pulsar.Client:
    """A client with the connection's credentials and trusted certificates; it verifies host names. Close it.

    :raises FleetError: the token cannot be read, see `ClusterConnection.read_token`.
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
