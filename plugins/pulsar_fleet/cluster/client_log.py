"""Clients of pulsar-client, and their log: errors as ours, and the chunks that it threw away, told nowhere else.

It logs natively into a file that has no name: with a Python logger the process is aborted by a command that
pulsar-client knows no text for, such as a migrated topic's (observed with 3.13).
"""

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

from pulsar_fleet.cluster.position import Position

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
