"""Both engines of one cluster with one `read`: each range names the engine that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.messages.engines.base import ConnectedEngine
from pulsar_fleet.messages.engines.chunks import ChunkAssembly, ChunkBeforeRange
from pulsar_fleet.messages.engines.entry import EntryEngine
from pulsar_fleet.messages.protocol.stored_entry import Corrupt
from pulsar_fleet.messages.protocol.stored_message import EntryContent, StoredMessage, read_content, unpack
from pulsar_fleet.messages.ranges import EngineName, Range


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
