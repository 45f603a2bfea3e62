"""Engine `client`: stored messages through pulsar-client's Reader, message by message.

A Reader has no durable subscription: nothing remains on the broker, also when the process dies. On a topic that was
migrated (flag set, terminated, still loaded) it reads to the end on this cluster, and is redirected to the other one
only after it has acknowledged the last message (observed on 4.2.4). If such a topic is unloaded, its readers are sent
to the other cluster without an error, so a verification must check afterwards that the topic stayed loaded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from typing import Any

import pulsar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PermissionDenied, Unavailable
from pulsar_fleet.cluster.message_client import (
    OPERATION_TIMEOUT_SECONDS,
    OrphanedChunks,
    is_logged,
    open_client,
    orphaned_chunks,
)
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.engines.base import ConnectedEngine
from pulsar_fleet.messages.engines.chunks import ChunkBeforeRange, ends_with_chunk
from pulsar_fleet.messages.engines.entry import EntryEngine
from pulsar_fleet.messages.engines.reader_pool import ReaderPool
from pulsar_fleet.messages.message_ids import is_last, position_of
from pulsar_fleet.messages.ranges import EngineName, Range, entries_after

MESSAGES_PER_CHECK = 64
"""Getting a message's position costs a tenth of reading it, so it is checked once for this many messages at most."""

FIRST_WAIT_MS = 50
CLOSE_DELAY_SECONDS = 0.3
IDLE_SECONDS = 2.0
STALL_SECONDS = 30.0
RECEIVER_QUEUE = 1000
LEAST_RECEIVER_QUEUE = 100

_BY_EXCEPTION: tuple[tuple[type[Exception], type[FleetError], str], ...] = (
    (pulsar.TopicNotFound, NotFound, "does not exist"),
    (pulsar.AuthorizationError, PermissionDenied, "may not be read by this role: grant it consume"),
    (pulsar.AuthenticationError, PermissionDenied, "cannot be read, because the token is not accepted"),
    (pulsar.Timeout, Unavailable, "timed out (this client reports a refused token as a timeout too)"),
)


class ClientEngine(ConnectedEngine):
    """Reads ranges of one cluster; one connection for all its topics, opened at the first read.

    Not thread-safe. Close it, or let the process end.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        queue: int = RECEIVER_QUEUE,
        stall_seconds: float = STALL_SECONDS,
        operation_timeout_seconds: int = OPERATION_TIMEOUT_SECONDS,
    ) -> None:
        self.connection = connection
        self._queue = queue
        self._operation_timeout_seconds = operation_timeout_seconds
        self._stall_seconds = stall_seconds
        self._client: pulsar.Client | None = None
        self._sees_chunks = True
        self._opening = Lock()
        self._readers = ReaderPool(self._open_reader)

    def close(self) -> None:
        """Close the connection; a second call does nothing, a later read opens it again."""
        self._readers.close()
        client, self._client = self._client, None
        if client is not None:
            with suppress(pulsar.PulsarException):
                client.close()

    def expect(self, ranges: Sequence[Range]) -> None:
        """Open the readers of the ranges that are read next, in the background."""
        self._readers.expect(ranges)

    def read(self, entry_range: Range) -> Iterator[list[Any]]:
        """Every message of the range, in order, in lists of up to 64.

        The position of a chunked message is that of its last chunk. An encrypted batch is one message, as it is stored.

        :raises FleetError: `NotFound`, `PermissionDenied` or `Unavailable` by the broker's answer; `Conflict` for a
            message outside of the range, because then the reader was sent to another cluster; `ChunkBeforeRange` for a
            chunked message that begins before the first entry that was read.
        """
        with self._fleet_errors(entry_range.topic), orphaned_chunks() as orphans:
            self._connected()
            if entry_range.lookback and not self._sees_chunks:
                entry_range = entry_range.from_lookback()
            reader = self._readers.take(entry_range)
            try:
                for batch in self._batches(reader, entry_range, orphans):
                    yield batch if entry_range.start is None else _inside(entry_range, batch)
                if not entry_range.tolerant and orphans.between(entry_range.first, entry_range.last):
                    raise ChunkBeforeRange(entry_range, self.connection.name)
            finally:
                if entry_range.final:
                    # Closing sends the acknowledgment at once; before that the broker must have reported the end.
                    time.sleep(CLOSE_DELAY_SECONDS)
                self._readers.release(reader, now=entry_range.final)

    def _open_reader(self, entry_range: Range) -> pulsar.Reader:
        begins = entry_range.start or entry_range.first
        return self._connected().create_reader(
            entry_range.topic,
            pulsar.MessageId(-1, begins.ledger, begins.entry, -1),
            # Prefetched messages after the range are wasted, and a sample has many small ranges.
            receiver_queue_size=min(self._queue, max(LEAST_RECEIVER_QUEUE, entry_range.entries)),
            start_message_id_inclusive=True,
            is_read_compacted=entry_range.compacted,
            crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
        )

    def _batches(self, reader: pulsar.Reader, entry_range: Range, orphans: OrphanedChunks) -> Iterator[list[Any]]:
        count = min(MESSAGES_PER_CHECK, entry_range.entries)
        begins = entry_range.start or entry_range.first
        before = Position(begins.ledger, begins.entry - 1)
        while True:
            batch = self._take(reader, entry_range, orphans, before, count)
            ended = len(batch) < count
            while batch and position_of(batch[-1]) > entry_range.last:
                batch.pop()
                ended = True
            if batch:
                before = self._in_order(entry_range, before, batch)
                yield batch
            if ended or is_last(batch[-1], entry_range):
                return
            count = min(MESSAGES_PER_CHECK, max(1, entries_after(entry_range, before)))

    def _in_order(self, entry_range: Range, before: Position, batch: list[Any]) -> Position:
        first, last = position_of(batch[0]), position_of(batch[-1])
        if not max(before, entry_range.start or entry_range.first) <= first <= last:
            raise Conflict(
                f"A reader of {entry_range.topic} on {self.connection.name} got a message at {first} after {before}, "
                f"which is not between {entry_range.first} and {entry_range.last}: the reader was sent to another "
                "cluster. Verify again while the topic stays loaded.",
                cluster=self.connection.name,
            )
        return last

    def _take(
        self, reader: pulsar.Reader, entry_range: Range, orphans: OrphanedChunks, before: Position, count: int
    ) -> list[Any]:
        """`count` messages; fewer only if the topic has no more."""
        receive = reader._reader.read_next  # the wrapper around it costs a third of the rate (measured)
        batch: list[Any] = []
        while len(batch) < count:
            try:
                batch.append(receive(FIRST_WAIT_MS))
            except pulsar.Timeout:
                after = position_of(batch[-1]) if batch else before
                message = self._wait(reader, entry_range, orphans, after)
                if message is None:
                    break
                batch.append(message)
        return batch

    def _wait(self, reader: pulsar.Reader, entry_range: Range, orphans: OrphanedChunks, after: Position) -> Any | None:
        """The next message; None at the end, because the last entries may be markers, which are never delivered."""
        started = time.monotonic()
        chunk_checked = False
        while time.monotonic() < started + self._stall_seconds:
            if not reader.has_message_available() and not self._holds_more(entry_range, after):
                return None
            discarded = orphans.between(entry_range.last, entry_range.last)
            with suppress(pulsar.Timeout):
                return reader._reader.read_next(1000 if chunk_checked else FIRST_WAIT_MS)
            if discarded:
                return None
            if not chunk_checked and time.monotonic() > started + IDLE_SECONDS:
                chunk_checked = True
                if ends_with_chunk(self.connection, entry_range):
                    return None
        raise Unavailable(
            f"{self.connection.name} reports more messages of {entry_range.topic}, but delivered none for "
            f"{self._stall_seconds:.0f} s.",
            cluster=self.connection.name,
        )

    def _holds_more(self, entry_range: Range, after: Position) -> bool:
        """Whether the range has an entry after a position.

        A 4.2.4 broker reports a topic as empty if it was migrated before anything was written to its open ledger
        (observed).
        """
        if after >= entry_range.last or entry_range.compacted:
            return False
        begins = Position(after.ledger, after.entry + 1)
        rest = replace(entry_range, first=begins, start=None, lookback=None, engine=EngineName.ENTRY)
        with EntryEngine(self.connection) as entries:
            return any(entries.read(rest))

    def _connected(self) -> pulsar.Client:
        with self._opening:
            if self._client is None:
                self._client = open_client(self.connection, self._operation_timeout_seconds)
                self._sees_chunks = is_logged(self._client)
            return self._client

    @contextmanager
    def _fleet_errors(self, topic: str) -> Iterator[None]:
        try:
            yield
        except pulsar.PulsarException as error:
            raised, reason = next(
                ((raised, reason) for kind, raised, reason in _BY_EXCEPTION if isinstance(error, kind)),
                (Unavailable, "could not be read"),
            )
            raise raised(
                f"{topic} {reason} on {self.connection.name} ({self.connection.service_url}): {error}.",
                cluster=self.connection.name,
            ) from error


def _inside(entry_range: Range, batch: list[Any]) -> list[Any]:
    if position_of(batch[0]) >= entry_range.first:
        return batch
    return [message for message in batch if position_of(message) >= entry_range.first]
