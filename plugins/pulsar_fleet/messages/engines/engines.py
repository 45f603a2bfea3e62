"""Both engines of one cluster behind one `read`: each range names the one that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.messages.engines.base import Closing
from pulsar_fleet.messages.engines.client import ClientEngine
from pulsar_fleet.messages.engines.entry import EntryEngine
from pulsar_fleet.messages.ranges import EngineName, Range


class Engines(Closing):
    """Reads ranges of one cluster; an engine connects when the first range names it.

    Not for several threads at once. Close it, or let the process end.
    """

    def __init__(self, connection: ClusterConnection) -> None:
        self._client = ClientEngine(connection)
        self._entry = EntryEngine(connection)

    def close(self) -> None:
        """Close all connections; a second call does nothing, a later read opens them again."""
        self._client.close()
        self._entry.close()

    def expect(self, ranges: Sequence[Range]) -> None:
        """Make ready for the ranges that are read next, where their engine can."""
        self._client.expect([each for each in ranges if each.engine is EngineName.CLIENT])

    def read(self, wanted: Range) -> Iterator[Sequence[Any]]:
        """What lies within the range, as its engine gives it."""
        return self._entry.read(wanted) if wanted.engine is EngineName.ENTRY else self._client.read(wanted)


_engines: dict[tuple[int, ClusterConnection], Engines] = {}


def worker_engines(connection: ClusterConnection) -> Engines:
    """The engines of this process for a cluster; a second call gives the same.

    One set per worker process: Spark forks its workers, and a client's threads do not survive a fork.
    """
    key = (os.getpid(), connection)
    if key not in _engines:
        _engines[key] = Engines(connection)
    return _engines[key]
