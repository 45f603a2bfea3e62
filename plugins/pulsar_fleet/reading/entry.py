"""Engine `entry`: stored entries as the broker sends them, digested as a whole, without unpacking batches.

Only for copies that keep entries whole, as geo-replication does. Nothing is acknowledged: a non-durable subscription
needs none, and a broker that sees no acknowledgment never takes a migrated topic for read (see `ranges.cut`). When the
connection breaks or the topic moves to another broker, reading goes on behind the last entry.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, Transient
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.reading import wire_frames as wire
from pulsar_fleet.reading.ranges import Range, unread_entries
from pulsar_fleet.reading.stored_entry import Corrupt, StoredEntry, read_entry
from pulsar_fleet.reading.wire_connection import ConnectionLost, Frame, WireConnection
from pulsar_fleet.reading.wire_frames import Kind
from pulsar_fleet.reading.wire_lookup import Brokers

log = logging.getLogger(__name__)

ENTRIES_AT_ONCE = 64
ENTRIES_AHEAD = 256
"""Entries that a broker may have sent and we not read: it counts messages, so the largest batch seen is the measure."""

FIRST_PERMITS = 1000
QUIET_SECONDS = 0.05
STALL_SECONDS = 30.0
PATIENCE_SECONDS = 30.0
TIMEOUT_SECONDS = 30.0
_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)


class EntryEngine:
    """Reads ranges of one cluster over connections of its own, opened at the first read.

    Not for several threads at once. Close it, or let the process end.

    :param stall_seconds: how long a broker may deliver nothing although it says that there is more.
    :param patience_seconds: how long it is tried to go on after a failure that may pass.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        stall_seconds: float = STALL_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.connection = connection
        self._stall_seconds = stall_seconds
        self._patience_seconds = patience_seconds
        self._timeout_seconds = timeout_seconds
        self._brokers: Brokers | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a second call does nothing, a later read opens them again."""
        brokers, self._brokers = self._brokers, None
        if brokers is not None:
            brokers.close()

    def read(self, wanted: Range) -> Iterator[list[StoredEntry]]:
        """Every entry that lies within the range, in order and each once, in lists of up to 64.

        :raises FleetError: `Missing`, `Denied` or `Conflict` by what the broker said; `Transient` when no entry could
            be read for `patience_seconds`.
        """
        after = Position(wanted.first.ledger, wanted.first.entry - 1)
        tried, deadline = 0, time.monotonic() + self._patience_seconds
        while True:
            try:
                for entries in self._entries(wanted, after):
                    after = Position(entries[-1].ledger, entries[-1].entry)
                    yield entries
                    tried, deadline = 0, time.monotonic() + self._patience_seconds
            except Transient as error:
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
        subscription = _Subscription(broker, wanted, after, self.connection.name, self._stall_seconds)
        try:
            yield from subscription.entries()
        except BaseException:
            self.close()  # the broker ends the subscription with its connection
            raise
        try:
            subscription.close()
        except FleetError:
            self.close()  # all was read; it cannot be asked for less than to forget us


class _Subscription:
    """One non-durable subscription while it is read."""

    def __init__(
        self, broker: WireConnection, wanted: Range, after: Position, cluster: str, stall_seconds: float
    ) -> None:
        self._broker = broker
        self._wanted = wanted
        self._last = (wanted.last.ledger, wanted.last.entry)
        self._at = (after.ledger, after.entry)
        self._cluster = cluster
        self._stall_seconds = stall_seconds
        self._heard = time.monotonic()
        self._asked = False
        self._permits = self._enough = self._largest = 0
        self._id = broker.next_id()
        request = broker.next_id()
        first = Position(after.ledger, after.entry + 1)
        name = f"pulsar-fleet-{uuid.uuid4().hex}"
        broker.ask(request, wire.subscribe(request, self._id, wanted.topic, name, first), about=wanted.topic)

    def close(self) -> None:
        """End it on the broker; what is still under way is dropped."""
        request = self._broker.next_id()
        self._broker.ask(request, wire.close_consumer(request, self._id), about=self._wanted.topic)

    def entries(self) -> Iterator[list[StoredEntry]]:
        """All that follows, up to the range's last entry or to the last one that the broker has to give."""
        ended = False
        while not ended:
            found, ended = self._take()
            if found:
                yield found

    def _take(self) -> tuple[list[StoredEntry], bool]:
        """The next entries, and whether none follows."""
        found: list[StoredEntry] = []
        while len(found) < ENTRIES_AT_ONCE:
            if self._permits <= self._enough:
                self._allow()
            frame = self._broker.next_frame(QUIET_SECONDS)
            if frame is None or frame.kind != Kind.MESSAGE:
                if self._is_end(frame):
                    return found, True
                continue
            entry = self._read(frame)
            if entry is None:
                continue
            if self._at <= self._last and entry.digest:
                found.append(entry)
            if self._at >= self._last:
                return found, True
        return found, False

    def _allow(self) -> None:
        """Give permits for what is still wanted, so that little more is sent than is read."""
        left = unread_entries(self._wanted, Position(*self._at))
        room = max(min(ENTRIES_AHEAD, left) * self._largest, FIRST_PERMITS if self._permits <= 0 else 0)
        if room > self._permits:
            self._broker.send(wire.flow(self._id, room - self._permits))
            self._permits = room
        self._enough = room // 2

    def _read(self, frame: Frame) -> StoredEntry | None:
        """The entry in a frame; None when it was meant for an earlier subscription."""
        consumer, ledger, number = wire.read_message(self._broker.buffer, frame.begin)
        if consumer != self._id:
            return None
        if (ledger, number) <= self._at:
            raise Conflict(
                f"Reading {self._wanted.topic} from {self._cluster} gave entry {ledger}:{number} after "
                f"{Position(*self._at)}; verify again.",
                cluster=self._cluster,
            )
        try:
            entry = read_entry(ledger, number, self._broker.content(frame))
        except Corrupt as error:
            raise Transient(
                f"Entry {ledger}:{number} of {self._wanted.topic} did not arrive from {self._cluster} as it was "
                f"written: {error}.",
                cluster=self._cluster,
            ) from error
        self._at = (ledger, number)
        self._permits -= entry.messages
        if entry.messages > self._largest:
            self._largest = entry.messages
        self._heard, self._asked = 0.0, False
        return entry

    def _is_end(self, frame: Frame | None) -> bool:
        """Look at anything but a message; after silence ask for the last message that can be delivered.

        The last entries of a range may be markers or of an aborted transaction, which are never delivered.
        """
        if frame is None:
            return self._silent()
        command = self._broker.command(frame)
        if command.kind == Kind.GET_LAST_MESSAGE_ID_RESPONSE:
            self._asked = False
            last = command.position(1)
            return (last.ledger, last.entry) <= self._at
        if command.kind == Kind.CLOSE_CONSUMER and command.number(1) == self._id:
            raise ConnectionLost(f"{self._cluster} closed the reader of {self._wanted.topic}.", cluster=self._cluster)
        if command.kind == Kind.TOPIC_MIGRATED:
            raise self._broker.moved(self._wanted.topic)
        return False

    def _silent(self) -> bool:
        now = time.monotonic()
        if not self._heard:
            self._heard = now
        if now - self._heard > self._stall_seconds:
            raise Transient(
                f"{self._cluster} says that {self._wanted.topic} has more entries than {Position(*self._at)}, but "
                f"delivered none for {self._stall_seconds:.0f} s.",
                cluster=self._cluster,
            )
        if not self._asked:
            self._asked = True
            self._broker.send(wire.get_last_message_id(self._broker.next_id(), self._id))
        return False
