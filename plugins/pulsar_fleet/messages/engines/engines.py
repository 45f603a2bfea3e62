"""Both engines of one cluster with one `read`: each range names the engine that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.messages.engines.base import ConnectedEngine
from pulsar_fleet.messages.engines.entry import EntryEngine
from pulsar_fleet.messages.engines.message import MessageEngine
from pulsar_fleet.messages.ranges import EngineName, Range


class Engines(ConnectedEngine):
    """Reads ranges of one cluster over connections of its own, opened at the first read.

    Not thread-safe. Close it, or let the process end.

    :param options: of `EntryEngine`.
    """

    def __init__(self, connection: ClusterConnection, **options: float) -> None:
        self._entry = EntryEngine(connection, **options)
        self._message = MessageEngine(self._entry)

    def close(self) -> None:
        """Close all connections; a second call does nothing, a later read opens them again."""
        self._entry.close()

    def read(self, entry_range: Range) -> Iterator[Sequence[Any]]:
        """The content of the range, as its engine reads it."""
        return (
            self._entry.read(entry_range) if entry_range.engine is EngineName.ENTRY else self._message.read(entry_range)
        )


_engines: dict[tuple[int, ClusterConnection], Engines] = {}


def worker_engines(connection: ClusterConnection) -> Engines:
    """The engines of this process for a cluster; a second call returns the same ones.

    One set per worker process: Spark forks its workers, and a forked process must not use its parent's connections.
    """
    key = (os.getpid(), connection)
    if key not in _engines:
        _engines[key] = Engines(connection)
    return _engines[key]
