"""The two engines of a cluster with one `read`: each range names the engine that reads it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, Unavailable
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.engines.base import ConnectedEngine
from pulsar_fleet.messages.protocol.lookup import Brokers
from pulsar_fleet.messages.protocol.stored_entry import (
    Corrupt,
    EntryContent,
    StoredEntry,
    StoredMessage,
    read_content,
    read_entry,
    unpack,
)
from pulsar_fleet.messages.protocol.subscription import Entry, ReadEntry, Subscription, Timeouts
from pulsar_fleet.messages.ranges import LOOKBACK_ENTRIES, EngineName, Range

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


class MessageEngine:
    """Reads messages of one cluster over the connections of its engine of entries. Not thread-safe.

    It unpacks the entries itself, because a client does not say which optional fields of a message are set: to it, the
    key "" and no key are the same.
    """

    def __init__(self, entries: EntryEngine) -> None:
        self._entries = entries

    def read(self, entry_range: Range) -> Iterator[list[StoredMessage]]:
        """Every message of the range, in order, in lists of those of up to 64 entries.

        The position of a chunked message is that of its last chunk. An encrypted batch is one message, as it is stored.

        :raises FleetError: as `EntryEngine.entries`; `ChunkBeforeRange` for a chunked message that begins before the
            first entry that was read.
        """
        chunks = ChunkAssembly()
        begins = replace(entry_range, first=entry_range.start or entry_range.first)
        for entries in self._entries.entries(begins, read_content):
            messages = [message for content in entries for message in self._messages(content, entry_range, chunks)]
            if messages:
                yield messages

    def _messages(self, content: EntryContent, entry_range: Range, chunks: ChunkAssembly) -> Iterator[StoredMessage]:
        payload: bytes | None = content.payload
        if content.metadata.num_chunks_from_msg > 1:
            payload = chunks.add(content)
        if content.position < entry_range.first:
            return
        if payload is None:
            if content.position == chunks.orphan and not entry_range.tolerant:
                raise ChunkBeforeRange(entry_range, self._entries.connection.name)
            return
        try:
            yield from unpack(content, payload)
        except Corrupt as error:
            name = self._entries.connection.name
            raise Unavailable(
                f"Entry {content.position} of {entry_range.topic} from {name} is corrupt: {error}.", cluster=name
            ) from error


class Engines(ConnectedEngine):
    """Reads ranges of one cluster over connections of its own, opened at the first read.

    Not thread-safe. Close it, or let the process end.

    :param options: of `EntryEngine`.
    """

    def __init__(self, connection: ClusterConnection, **options: float) -> None:
        self._entry = EntryEngine(connection, **options)
        self._message = MessageEngine(self._entry)

    def close(self) -> None:
        """Close all connections; a second call does nothing, a later read opens them again."""
        self._entry.close()

    def read(self, entry_range: Range) -> Iterator[Sequence[Any]]:
        """The content of the range, as its engine reads it."""
        return (
            self._entry.read(entry_range) if entry_range.engine is EngineName.ENTRY else self._message.read(entry_range)
        )


_engines: dict[tuple[int, ClusterConnection], Engines] = {}


def worker_engines(connection: ClusterConnection) -> Engines:
    """The engines of this process for a cluster; a second call returns the same ones.

    One set per worker process: Spark forks its workers, and a forked process must not use its parent's connections.
    """
    key = (os.getpid(), connection)
    if key not in _engines:
        _engines[key] = Engines(connection)
    return _engines[key]


MOST_UNFINISHED = 10
"""The most messages whose chunks are kept until the last one comes, as in a client; each may be large."""

Found = TypeVar("Found")


class ChunkBeforeRange(Conflict):
    """A chunked message ends in the range, but its first chunk lies before the first entry that was read."""

    def __init__(self, entry_range: Range, cluster: str) -> None:
        super().__init__(
            f"A chunked message of {entry_range.topic} on {cluster} ends between {entry_range.first} and "
            f"{entry_range.last}, but begins more than {LOOKBACK_ENTRIES:,} entries before, or overlaps with more "
            "unfinished chunked messages than a client keeps.",
            cluster=cluster,
        )


class ChunkAssembly:
    """Puts the chunks of messages together; a message whose last chunk does not come is not returned."""

    def __init__(self) -> None:
        self._unfinished: dict[bytes, list[bytes]] = {}
        self.orphan: Position | None = None

    def add(self, content: EntryContent) -> bytes | None:
        """The payload of the whole message if this is its last chunk, else None.

        A chunk whose predecessor was not read, or that is repeated, makes the message unreadable, as in a client.
        """
        identifier, number = content.metadata.uuid, content.metadata.chunk_id
        payloads = self._unfinished.pop(identifier, [])
        if number == 0:
            payloads = []
        elif number != len(payloads):
            self.orphan = content.position
            return None
        payloads.append(content.payload)
        if len(payloads) == content.metadata.num_chunks_from_msg:
            return b"".join(payloads)
        self._unfinished[identifier] = payloads
        if len(self._unfinished) > MOST_UNFINISHED:
            del self._unfinished[next(iter(self._unfinished))]
        return None


def with_lookback(entry_range: Range, read: Callable[[Range], Found]) -> Found:
    """The result of `read` for the range; if a chunked message begins before it, for the range with its lookback."""
    try:
        return read(entry_range)
    except ChunkBeforeRange:
        if entry_range.lookback is None:
            raise
        return read(entry_range.from_lookback())
