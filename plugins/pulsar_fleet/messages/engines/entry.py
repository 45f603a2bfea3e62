"""Engine `entry`: stored entries as the broker sends them, digested as a whole, without unpacking batches.

Only for copies that keep entries whole, as geo-replication does. Nothing is acknowledged: a non-durable subscription
needs no acknowledgment, and without one a broker does not redirect the reader of a migrated topic (see `ranges.cut`).
If the connection breaks or the topic moves to another broker, reading continues after the last entry.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, Unavailable
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.engines.base import ConnectedEngine
from pulsar_fleet.messages.protocol.lookup import Brokers
from pulsar_fleet.messages.protocol.stored_entry import StoredEntry, read_entry
from pulsar_fleet.messages.protocol.subscription import Entry, ReadEntry, Subscription, Timeouts
from pulsar_fleet.messages.ranges import Range

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.05
STALL_SECONDS = 30.0
RETRY_SECONDS = 30.0
TIMEOUT_SECONDS = 30.0
_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)


class EntryEngine(ConnectedEngine):
    """Reads ranges of one cluster over connections of its own, opened at the first read.

    Not thread-safe. Close it, or let the process end.

    :param idle_seconds: time without a message after which the engine asks the broker whether more messages follow.
    :param stall_seconds: how long a broker may deliver nothing although it reports more messages.
    :param retry_seconds: how long the engine retries after a transient failure.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        idle_seconds: float = IDLE_SECONDS,
        stall_seconds: float = STALL_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.connection = connection
        self._waits = Timeouts(idle_seconds, stall_seconds)
        self._patience_seconds = retry_seconds
        self._timeout_seconds = timeout_seconds
        self._brokers: Brokers | None = None

    def close(self) -> None:
        """Close the connections; a second call does nothing, a later read opens them again."""
        brokers, self._brokers = self._brokers, None
        if brokers is not None:
            brokers.close()

    def read(self, entry_range: Range) -> Iterator[list[StoredEntry]]:
        """Every entry of the range, with its digest; see `entries`."""
        return self.entries(entry_range, read_entry)

    def entries(self, entry_range: Range, read: ReadEntry[Entry]) -> Iterator[list[Entry]]:
        """Every entry of the range, in order and once, in lists of up to 64 entries and about 1 MiB.

        :param read: makes an entry of what the broker sends.
        :raises FleetError: `NotFound`, `PermissionDenied` or `Conflict` by the broker's answer; `Unavailable` if no
            entry could be read for `retry_seconds`.
        """
        after = Position(entry_range.first.ledger, entry_range.first.entry - 1)
        attempts, deadline = 0, time.monotonic() + self._patience_seconds
        while True:
            try:
                for entries in self._entries(entry_range, after, read):
                    after = entries[-1].position
                    yield entries
                    attempts, deadline = 0, time.monotonic() + self._patience_seconds
            except Unavailable as error:
                self.close()
                pause = _PAUSES[min(attempts, len(_PAUSES) - 1)]
                if time.monotonic() + pause > deadline:
                    raise
                log.info("%s: reading continues after %s: %s", entry_range.topic, after, error)
                attempts += 1
                time.sleep(pause)
            else:
                return

    def _entries(self, entry_range: Range, after: Position, read: ReadEntry[Entry]) -> Iterator[list[Entry]]:
        """The entries after `after`, read with one subscription."""
        if self._brokers is None:
            self._brokers = Brokers(self.connection, timeout_seconds=self._timeout_seconds)
        broker = self._brokers.serving(entry_range.topic)
        subscription = Subscription(broker, entry_range, after, self.connection.name, self._waits, read)
        try:
            yield from subscription.entries()
        except BaseException:
            self.close()  # the broker ends the subscription with its connection
            raise
        try:
            subscription.close()
        except FleetError:
            self.close()  # everything was read; closing the connection ends the subscription too
