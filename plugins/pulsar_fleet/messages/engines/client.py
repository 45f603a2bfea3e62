"""Engine `client`: stored messages through pulsar-client's Reader, message by message.

A Reader has no durable subscription: nothing is left on the broker, also when the process dies. On a topic that was
migrated (flag set, terminated, still loaded) it reads to the end on this cluster, and is redirected to the other one
only after it has acknowledged the last message (observed on 4.2.4). If such a topic is unloaded, its readers are sent
to the other cluster without an error: who verifies must check afterwards that the topic stayed loaded.
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
    Orphans,
    is_logged,
    open_client,
    orphaned_chunks,
)
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.engines.base import Closing
from pulsar_fleet.messages.engines.chunks import BegunBefore, ends_in_a_chunk
from pulsar_fleet.messages.engines.entry import EntryEngine
from pulsar_fleet.messages.engines.reader_pool import Readers
from pulsar_fleet.messages.message_ids import is_last, position_of
from pulsar_fleet.messages.ranges import EngineName, Range, unread_entries

LOOK_EVERY = 64
"""Asking a message where it lies costs a tenth of reading it, so it is asked once for so many at most."""

FIRST_WAIT_MS = 50
SETTLE_SECONDS = 0.3
QUIET_SECONDS = 2.0
STALL_SECONDS = 30.0
QUEUE = 1000
LEAST_QUEUE = 100

_BY_EXCEPTION: tuple[tuple[type[Exception], type[FleetError], str], ...] = (
    (pulsar.TopicNotFound, NotFound, "does not exist"),
    (pulsar.AuthorizationError, PermissionDenied, "may not be read by this role: grant it consume"),
    (pulsar.AuthenticationError, PermissionDenied, "cannot be read, because the token is not accepted"),
    (pulsar.Timeout, Unavailable, "was not answered in time (to this client a refused token looks the same)"),
)


class ClientEngine(Closing):
    """Reads ranges of one cluster; one connection for all its topics, opened at the first read.

    Not for several threads at once. Close it, or let the process end.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        queue: int = QUEUE,
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
        self._readers = Readers(self._open_reader)

    def close(self) -> None:
        """Close the connection; a second call does nothing, a later read opens it again."""
        self._readers.close()
        client, self._client = self._client, None
        if client is not None:
            with suppress(pulsar.PulsarException):
                client.close()

    def expect(self, ranges: Sequence[Range]) -> None:
        """Open the readers of the ranges that are read next, meanwhile."""
        self._readers.expect(ranges)

    def read(self, wanted: Range) -> Iterator[list[Any]]:
        """Every message that lies within the range, in order, in lists of up to 64.

        A message in chunks lies where its last chunk lies. An encrypted batch comes as one message, as it is stored.

        :raises FleetError: `NotFound`, `PermissionDenied` or `Unavailable` by what the broker said; `Conflict` for a
            message that
            cannot be of this range, because then the reader was sent to another cluster; `BegunBefore` for a chunk
            whose message began before the reading.
        """
        with self._speaking_plainly(wanted.topic), orphaned_chunks() as orphans:
            self._connected()
            if wanted.lookback and not self._sees_chunks:
                wanted = wanted.reaching_back()
            reader = self._readers.take(wanted)
            try:
                for batch in self._batches(reader, wanted, orphans):
                    yield batch if wanted.start is None else _inside(wanted, batch)
                if not wanted.tolerant and orphans.between(wanted.first, wanted.last):
                    raise BegunBefore(wanted, self.connection.name)
            finally:
                if wanted.final:
                    # Closing sends the acknowledgment at once; until then the broker must have seen the end.
                    time.sleep(SETTLE_SECONDS)
                self._readers.give_back(reader, now=wanted.final)

    def _open_reader(self, wanted: Range) -> pulsar.Reader:
        begins = wanted.start or wanted.first
        return self._connected().create_reader(
            wanted.topic,
            pulsar.MessageId(-1, begins.ledger, begins.entry, -1),
            # What is asked for and lies behind the range was sent in vain, and a sample has many small ranges.
            receiver_queue_size=min(self._queue, max(LEAST_QUEUE, wanted.entries)),
            start_message_id_inclusive=True,
            is_read_compacted=wanted.compacted,
            crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
        )

    def _batches(self, reader: pulsar.Reader, wanted: Range, orphans: Orphans) -> Iterator[list[Any]]:
        count = min(LOOK_EVERY, wanted.entries)
        begins = wanted.start or wanted.first
        before = Position(begins.ledger, begins.entry - 1)
        while True:
            batch = self._take(reader, wanted, orphans, before, count)
            ended = len(batch) < count
            while batch and position_of(batch[-1]) > wanted.last:
                batch.pop()
                ended = True
            if batch:
                before = self._in_order(wanted, before, batch)
                yield batch
            if ended or is_last(batch[-1], wanted):
                return
            count = min(LOOK_EVERY, max(1, unread_entries(wanted, before)))

    def _in_order(self, wanted: Range, before: Position, batch: list[Any]) -> Position:
        first, last = position_of(batch[0]), position_of(batch[-1])
        if not max(before, wanted.start or wanted.first) <= first <= last:
            raise Conflict(
                f"Reading {wanted.topic} from {self.connection.name} gave a message at {first} after {before}, which "
                f"is not between {wanted.first} and {wanted.last}: the reader was sent to another cluster. "
                "Verify again while the topic stays loaded.",
                cluster=self.connection.name,
            )
        return last

    def _take(self, reader: pulsar.Reader, wanted: Range, orphans: Orphans, before: Position, count: int) -> list[Any]:
        """`count` messages, fewer only when the topic holds no more."""
        receive = reader._reader.read_next  # the wrapper around it costs a third of the rate (measured)
        batch: list[Any] = []
        while len(batch) < count:
            try:
                batch.append(receive(FIRST_WAIT_MS))
            except pulsar.Timeout:
                after = position_of(batch[-1]) if batch else before
                message = self._wait(reader, wanted, orphans, after)
                if message is None:
                    break
                batch.append(message)
        return batch

    def _wait(self, reader: pulsar.Reader, wanted: Range, orphans: Orphans, after: Position) -> Any | None:
        """The next message, None at the end: the last entries may be markers, which are never delivered."""
        begun = time.monotonic()
        asked = False
        while time.monotonic() < begun + self._stall_seconds:
            if not reader.has_message_available() and not self._holds_more(wanted, after):
                return None
            thrown_away = orphans.between(wanted.last, wanted.last)
            with suppress(pulsar.Timeout):
                return reader._reader.read_next(1000 if asked else FIRST_WAIT_MS)
            if thrown_away:
                return None
            if not asked and time.monotonic() > begun + QUIET_SECONDS:
                asked = True
                if ends_in_a_chunk(self.connection, wanted):
                    return None
        raise Unavailable(
            f"{self.connection.name} says that {wanted.topic} has more messages, but delivered none for "
            f"{self._stall_seconds:.0f} s.",
            cluster=self.connection.name,
        )

    def _holds_more(self, wanted: Range, after: Position) -> bool:
        """Whether an entry of the range still has to come.

        A 4.2.4 broker calls a topic empty that was migrated before anything was written to its open ledger (observed).
        """
        if after >= wanted.last or wanted.compacted:
            return False
        begins = Position(after.ledger, after.entry + 1)
        rest = replace(wanted, first=begins, start=None, lookback=None, engine=EngineName.ENTRY)
        with EntryEngine(self.connection) as entries:
            return any(entries.read(rest))

    def _connected(self) -> pulsar.Client:
        with self._opening:
            if self._client is None:
                self._client = open_client(self.connection, self._operation_timeout_seconds)
                self._sees_chunks = is_logged(self._client)
            return self._client

    @contextmanager
    def _speaking_plainly(self, topic: str) -> Iterator[None]:
        try:
            yield
        except pulsar.PulsarException as error:
            raised, reason = _meaning(error)
            raise raised(
                f"{topic} {reason} on {self.connection.name} ({self.connection.service_url}): {error}.",
                cluster=self.connection.name,
            ) from error


def _meaning(error: pulsar.PulsarException) -> tuple[type[FleetError], str]:
    for kind, raised, reason in _BY_EXCEPTION:
        if isinstance(error, kind):
            return raised, reason
    return Unavailable, "could not be read"


def _inside(wanted: Range, batch: list[Any]) -> list[Any]:
    return batch if position_of(batch[0]) >= wanted.first else [m for m in batch if position_of(m) >= wanted.first]
