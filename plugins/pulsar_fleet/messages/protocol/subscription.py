"""One non-durable subscription over the binary protocol: flow control, and detection of the end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pulsar_fleet.cluster.errors import Conflict, Unavailable
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.cluster.statistics import OWN_READERS
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.connection import ConnectionLost, Frame, WireConnection
from pulsar_fleet.messages.protocol.stored_entry import Bytes, Corrupt
from pulsar_fleet.messages.ranges import Range, entries_after, is_from

ENTRIES_AT_ONCE = 64
BYTES_AT_ONCE = 1 << 20
"""In one list, so that a slow reader answers pings before the broker closes the connection (30 to 60 s)."""

ENTRIES_AHEAD = 256
"""Unread entries that a broker may have sent. It counts messages, so permits assume the largest batch so far."""

FIRST_PERMITS = 1000


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long nothing may arrive: until the broker is asked for its last message, and until reading fails."""

    idle_seconds: float
    stall_seconds: float


class Sized(Protocol):
    """What flow control needs to know of an entry; a marker of the broker is not returned.

    Neither is one with another origin than that of the range.
    """

    @property
    def position(self) -> Position: ...
    @property
    def messages(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def marker(self) -> bool: ...
    @property
    def origin(self) -> str: ...


Entry = TypeVar("Entry", bound=Sized)
ReadEntry = Callable[[int, int, Bytes], Entry]
"""Makes an entry of its ledger, its number and its bytes, which are valid only during the call."""


class Subscription(Generic[Entry]):
    """One non-durable subscription while it is read.

    :param read: makes an entry of what the broker sends.
    """

    def __init__(
        self,
        broker: WireConnection,
        entry_range: Range,
        after: Position,
        cluster: str,
        waits: Timeouts,
        read: ReadEntry[Entry],
    ) -> None:
        self._broker = broker
        self._read_entry = read
        self._range = entry_range
        self._last = (entry_range.last.ledger, entry_range.last.entry)
        self._at = (after.ledger, after.entry)
        self._cluster = cluster
        self._waits = waits
        self._idle_since = time.monotonic()
        self._end_requested = False
        self._permits = self._enough = self._largest = self._delivered = 0
        self._id = broker.next_id()
        request = broker.next_id()
        first = Position(after.ledger, after.entry + 1)
        name = f"{OWN_READERS}{uuid.uuid4().hex}"
        subscribe = wire.subscribe(request, self._id, entry_range.topic, name, first, compacted=entry_range.compacted)
        broker.ask(request, subscribe, about=entry_range.topic)

    def close(self) -> None:
        """End the subscription on the broker; messages on the way are dropped."""
        request = self._broker.next_id()
        self._broker.ask(request, wire.close_consumer(request, self._id), about=self._range.topic)

    def entries(self) -> Iterator[list[Entry]]:
        """All following entries, up to the last entry of the range or the last one that the broker delivers."""
        ended = False
        while not ended:
            batch, ended = self._take()
            if batch:
                yield batch

    def _take(self) -> tuple[list[Entry], bool]:
        """The next entries, and whether they are the last ones."""
        entries: list[Entry] = []
        size = 0
        while len(entries) < ENTRIES_AT_ONCE and size < BYTES_AT_ONCE:
            if self._permits <= self._enough:
                self._allow()
            frame = self._broker.next_frame(self._waits.idle_seconds)
            if frame is None or frame.kind != api.MESSAGE:
                if self._is_end(frame):
                    return entries, True
                continue
            entry = self._read(frame)
            if entry is None:
                continue
            if self._at <= self._last and not entry.marker and is_from(entry.origin, self._range.origin):
                entries.append(entry)
                size += entry.size
            if self._at >= self._last:
                return entries, True
        return entries, False

    def _allow(self) -> None:
        """Send permits for the remaining entries only, so that the broker sends little more than is read."""
        remaining = entries_after(self._range, Position(*self._at))
        room = max(min(ENTRIES_AHEAD, remaining) * self._largest, FIRST_PERMITS if self._permits <= 0 else 0)
        if room > self._permits:
            self._broker.send(wire.flow(self._id, room - self._permits))
            self._permits = room
        self._enough = room // 2

    def _read(self, frame: Frame) -> Entry | None:
        """The entry in a frame; None if it belongs to an earlier subscription."""
        consumer, ledger, number = wire.read_message(self._broker.buffer, frame.begin)
        if consumer != self._id:
            return None
        self._delivered += 1
        if (ledger, number) <= self._at:
            raise Conflict(
                f"{self._cluster} delivered entry {ledger}:{number} of {self._range.topic} after "
                f"{Position(*self._at)}; verify again.",
                cluster=self._cluster,
            )
        try:
            entry = self._read_entry(ledger, number, self._broker.content(frame))
        except Corrupt as error:
            raise Unavailable(
                f"Entry {ledger}:{number} of {self._range.topic} from {self._cluster} is corrupt: {error}.",
                cluster=self._cluster,
            ) from error
        self._at = (ledger, number)
        self._permits -= entry.messages
        if entry.messages > self._largest:
            self._largest = entry.messages
        self._idle_since, self._end_requested = 0.0, False
        return entry

    def _is_end(self, frame: Frame | None) -> bool:
        """Handle a frame that is not a message; if nothing arrived, ask whether a message follows.

        The last entries of a range may be markers or belong to an aborted transaction, which are never delivered. So
        the end is the last message that the broker would deliver, except on a topic that was migrated before anything
        was written to its open ledger: for it a 4.2.4 broker answers that it is empty, although earlier ledgers hold
        entries (observed). There the end follows from the backlog: nothing is acknowledged, so the backlog counts the
        delivered and the following messages.
        """
        if frame is None:
            return self._check_stall()
        command = self._broker.command(frame)
        if command.type == api.GET_LAST_MESSAGE_ID_RESPONSE:
            last = command.get_last_message_id_response.last_message_id
            if last.entry_id < 0:
                self._broker.send(wire.consumer_stats(self._broker.next_id(), self._id))
                return False
            self._end_requested = False
            return (last.ledger_id, last.entry_id) <= self._at
        if command.type == api.CONSUMER_STATS_RESPONSE:
            self._end_requested = False
            stats = command.consumer_stats_response
            return not stats.HasField("error_code") and stats.message_backlog == self._delivered
        if command.close_consumer.consumer_id == self._id:
            raise ConnectionLost(f"{self._cluster} closed the reader of {self._range.topic}.", cluster=self._cluster)
        if command.type == api.TOPIC_MIGRATED:
            raise self._broker.moved(self._range.topic)
        return False

    def _check_stall(self) -> bool:
        now = time.monotonic()
        if not self._idle_since:
            self._idle_since = now
        if now - self._idle_since > self._waits.stall_seconds:
            raise Unavailable(
                f"{self._cluster} reports more entries of {self._range.topic} after {Position(*self._at)}, but "
                f"delivered none for {self._waits.stall_seconds:.0f} s.",
                cluster=self._cluster,
            )
        if not self._end_requested:
            self._end_requested = True
            self._broker.send(wire.get_last_message_id(self._broker.next_id(), self._id))
        return False
