"""Both engines of one cluster with one `read`: each range names the engine that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.messages.engines.base import ConnectedEngine
from pulsar_fleet.messages.engines.client import ClientEngine
from pulsar_fleet.messages.engines.entry import EntryEngine
from pulsar_fleet.messages.ranges import EngineName, Range


class Engines(ConnectedEngine):
    """Reads ranges of one cluster; an engine connects when the first range names it.

    Not thread-safe. Close it, or let the process end.
    """

    def __init__(self, connection: ClusterConnection) -> None:
        self._client = ClientEngine(connection)
        self._entry = EntryEngine(connection)

    def close(self) -> None:
        """Close all connections; a second call does nothing, a later read opens them again."""
        self._client.close()
        self._entry.close()

    def expect(self, ranges: Sequence[Range]) -> None:
        """Prepare for the ranges that are read next, if their engine supports it."""
        self._client.expect([entry_range for entry_range in ranges if entry_range.engine is EngineName.CLIENT])

    def read(self, entry_range: Range) -> Iterator[Sequence[Any]]:
        """The content of the range, as its engine reads it."""
        return (
            self._entry.read(entry_range) if entry_range.engine is EngineName.ENTRY else self._client.read(entry_range)
        )


_engines: dict[tuple[int, ClusterConnection], Engines] = {}


def worker_engines(connection: ClusterConnection) -> Engines:
    """The engines of this process for a cluster; a second call returns the same ones.

    One set per worker process: Spark forks its workers, and a client's threads do not survive a fork.
    """
    key = (os.getpid(), connection)
    if key not in _engines:
        _engines[key] = Engines(connection)
    return _engines[key]
