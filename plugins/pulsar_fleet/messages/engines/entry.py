"""Engine `entry`: stored entries as the broker sends them, digested as a whole, without unpacking batches.

Only for copies that keep entries whole, as geo-replication does. Nothing is acknowledged: a non-durable subscription
needs none, and a broker that sees no acknowledgment never takes a migrated topic for read (see `ranges.cut`). When the
connection breaks or the topic moves to another broker, reading goes on behind the last entry.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.engines.base import Closing
from pulsar_fleet.messages.engines.stored_entry import StoredEntry
from pulsar_fleet.messages.protocol.lookup import Brokers
from pulsar_fleet.messages.protocol.subscription import Subscription, Waits
from pulsar_fleet.messages.ranges import Range

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.05
STALL_SECONDS = 30.0
PATIENCE_SECONDS = 30.0
TIMEOUT_SECONDS = 30.0
_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)


class EntryEngine(Closing):
    """Reads ranges of one cluster over connections of its own, opened at the first read.

    Not for several threads at once. Close it, or let the process end.

    :param quiesce_seconds: silence after which the broker is asked whether anything follows.
    :param stall_seconds: how long a broker may deliver nothing although it says that there is more.
    :param patience_seconds: how long it is tried to go on after a failure that may pass.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        quiesce_seconds: float = QUIET_SECONDS,
        stall_seconds: float = STALL_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.connection = connection
        self._waits = Waits(quiesce_seconds, stall_seconds)
        self._patience_seconds = patience_seconds
        self._timeout_seconds = timeout_seconds
        self._brokers: Brokers | None = None

    def close(self) -> None:
        """Close the connections; a second call does nothing, a later read opens them again."""
        brokers, self._brokers = self._brokers, None
        if brokers is not None:
            brokers.close()

    def expect(self, ranges: Sequence[Range]) -> None:
        """Nothing: the next range is read on the same connection."""

    def read(self, wanted: Range) -> Iterator[list[StoredEntry]]:
        """Every entry that lies within the range, in order and each once, in lists of up to 64 and about 1 MiB.

        :raises FleetError: `NotFound`, `PermissionDenied` or `Conflict` by what the broker said; `Unavailable` when
            no entry could be read for `patience_seconds`.
        """
        after = Position(wanted.first.ledger, wanted.first.entry - 1)
        tried, deadline = 0, time.monotonic() + self._patience_seconds
        while True:
            try:
                for entries in self._entries(wanted, after):
                    after = Position(entries[-1].ledger, entries[-1].entry)
                    yield entries
                    tried, deadline = 0, time.monotonic() + self._patience_seconds
            except Unavailable as error:
                self.close()
                pause = _PAUSES[min(tried, len(_PAUSES) - 1)]
                if time.monotonic() + pause > deadline:
                    raise
                log.info("%s: reading on after %s: %s", wanted.topic, after, error)
                tried += 1
                time.sleep(pause)
            else:
                return

    def _entries(self, wanted: Range, after: Position) -> Iterator[list[StoredEntry]]:
        """Read with one subscription, from behind `after` on."""
        if self._brokers is None:
            self._brokers = Brokers(self.connection, timeout_seconds=self._timeout_seconds)
        broker = self._brokers.serving(wanted.topic)
        subscription = Subscription(broker, wanted, after, self.connection.name, self._waits)
        try:
            yield from subscription.entries()
        except BaseException:
            self.close()  # the broker ends the subscription with its connection
            raise
        try:
            subscription.close()
        except FleetError:
            self.close()  # all was read; it cannot be asked for less than to forget us
