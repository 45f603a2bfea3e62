"""One non-durable subscription over the binary protocol: flow control, and knowing when nothing follows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.engines.stored_entry import Corrupt, StoredEntry, read_entry
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol.connection import ConnectionLost, Frame, WireConnection
from pulsar_fleet.messages.protocol.frames import Kind
from pulsar_fleet.messages.ranges import Range, unread_entries

ENTRIES_AT_ONCE = 64
BYTES_AT_ONCE = 1 << 20
"""In one list, so that who reads slowly comes back before the broker takes the connection for dead (30 to 60 s)."""

ENTRIES_AHEAD = 256
"""Entries that a broker may have sent and we not read: it counts messages, so the largest batch seen is the measure."""

FIRST_PERMITS = 1000
_ERROR, _BACKLOG = 2, 15


@dataclass(frozen=True, slots=True)
class Waits:
    """How long silence is borne: until the broker is asked, and until that is given up."""

    quiesce_seconds: float
    stall_seconds: float


class Subscription:
    """One non-durable subscription while it is read."""

    def __init__(self, broker: WireConnection, wanted: Range, after: Position, cluster: str, waits: Waits) -> None:
        self._broker = broker
        self._wanted = wanted
        self._last = (wanted.last.ledger, wanted.last.entry)
        self._at = (after.ledger, after.entry)
        self._cluster = cluster
        self._waits = waits
        self._heard = time.monotonic()
        self._asked = False
        self._permits = self._enough = self._largest = self._delivered = 0
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
        size = 0
        while len(found) < ENTRIES_AT_ONCE and size < BYTES_AT_ONCE:
            if self._permits <= self._enough:
                self._allow()
            frame = self._broker.next_frame(self._waits.quiesce_seconds)
            if frame is None or frame.kind != Kind.MESSAGE:
                if self._is_end(frame):
                    return found, True
                continue
            entry = self._read(frame)
            if entry is None:
                continue
            if self._at <= self._last and entry.digest:
                found.append(entry)
                size += entry.size
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
        self._delivered += 1
        if (ledger, number) <= self._at:
            raise Conflict(
                f"Reading {self._wanted.topic} from {self._cluster} gave entry {ledger}:{number} after "
                f"{Position(*self._at)}; verify again.",
                cluster=self._cluster,
            )
        try:
            entry = read_entry(ledger, number, self._broker.content(frame))
        except Corrupt as error:
            raise Unavailable(
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
        """Look at anything but a message; after silence ask whether one follows.

        The last entries of a range may be markers or of an aborted transaction, which are never delivered. The last
        message that the broker would deliver tells, but not of a topic that was migrated before anything was written to
        its open ledger: a 4.2.4 broker answers that it is empty, although earlier ledgers hold entries (observed).
        There the backlog tells: nothing is acknowledged, so it is what was delivered and what will be.
        """
        if frame is None:
            return self._silent()
        command = self._broker.command(frame)
        if command.kind == Kind.GET_LAST_MESSAGE_ID_RESPONSE:
            last = command.position(1)
            if last.entry < 0:
                self._broker.send(wire.consumer_stats(self._broker.next_id(), self._id))
                return False
            self._asked = False
            return (last.ledger, last.entry) <= self._at
        if command.kind == Kind.CONSUMER_STATS_RESPONSE:
            self._asked = False
            return command.number(_ERROR, -1) == -1 and command.number(_BACKLOG, -1) == self._delivered
        if command.kind == Kind.CLOSE_CONSUMER and command.number(1) == self._id:
            raise ConnectionLost(f"{self._cluster} closed the reader of {self._wanted.topic}.", cluster=self._cluster)
        if command.kind == Kind.TOPIC_MIGRATED:
            raise self._broker.moved(self._wanted.topic)
        return False

    def _silent(self) -> bool:
        now = time.monotonic()
        if not self._heard:
            self._heard = now
        if now - self._heard > self._waits.stall_seconds:
            raise Unavailable(
                f"{self._cluster} says that {self._wanted.topic} has more entries than {Position(*self._at)}, but "
                f"delivered none for {self._waits.stall_seconds:.0f} s.",
                cluster=self._cluster,
            )
        if not self._asked:
            self._asked = True
            self._broker.send(wire.get_last_message_id(self._broker.next_id(), self._id))
        return False
