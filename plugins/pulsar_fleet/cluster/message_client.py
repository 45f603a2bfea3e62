"""Clients of the broker's binary protocol, with a connection's credentials and trust."""

from __future__ import annotations

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
    """The log of this process: pulsar-client keeps the logger of its first client for all."""

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir()) / f"pulsar-client-{uuid.uuid4().hex}.log"
        self.watching: list[list[Position]] = []
        self._stream: TextIO | None = None
        self._reading = Lock()

    def take_hold(self) -> None:
        """Keep the file that the first client opened, and remove its name, so that nothing is left behind."""
        with self._reading, suppress(OSError):
            self._stream = self._stream or self.path.open()
            self.path.unlink()

    def read(self) -> int:
        """Take in what was logged since; returns the number of lines."""
        with self._reading:
            lines = self._stream.readlines() if self._stream else []
        for line in lines:
            if found := _ORPHAN.search(line):
                for each in self.watching:
                    each.append(Position(int(found[1]), int(found[2])))
            elif _NOT_A_TOPIC not in line:
                log.error("pulsar-client: %s", line.rstrip())
        return len(lines)


_logs: dict[int, _ClientLog] = {}


def _own_log() -> _ClientLog:
    """One per process: what a forked one inherits is its parent's."""
    return _logs.setdefault(os.getpid(), _ClientLog())


def new_client(service_url: str, **options: Any) -> pulsar.Client:
    """A client whose errors come to our log; `options` are those of `pulsar.Client`."""
    import pulsar

    own = _own_log()
    client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(own.path)), **options)
    own.take_hold()
    return client


def is_logged(client: pulsar.Client) -> bool:
    """Whether errors come to our log, and not where an earlier client of this process wanted them."""
    import pulsar

    own = _own_log()
    own.read()
    with suppress(pulsar.PulsarException):
        client.create_reader(_NOT_A_TOPIC, pulsar.MessageId.earliest)
    return own.read() > 0


class Orphans:
    """Chunks that were thrown away, because their beginning was not read; of all readers in this process."""

    def __init__(self, found: list[Position]) -> None:
        self._found = found

    def between(self, first: Position, last: Position) -> bool:
        """Whether one of them lies in a range, both ends included."""
        _own_log().read()
        return any(first <= each <= last for each in self._found)


@contextmanager
def orphaned_chunks() -> Iterator[Orphans]:
    """What is thrown away from now on; the log names no topic, so ledgers tell whose it is."""
    own, found = _own_log(), list[Position]()
    own.read()
    own.watching.append(found)
    try:
        yield Orphans(found)
    finally:
        own.watching = [each for each in own.watching if each is not found]


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
