"""Both engines of one cluster behind one `read`: each range names the one that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.reading.client import ClientEngine
from pulsar_fleet.reading.closing import Closing
from pulsar_fleet.reading.entry import EntryEngine
from pulsar_fleet.reading.ranges import EngineName, Range


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
