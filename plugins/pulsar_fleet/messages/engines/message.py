"""Engine `message`: stored messages one by one, for every copy.

It reads the entries as engine `entry` does, and unpacks them itself, because a client does not say which optional
fields of a message are set: to it, the key "" and no key are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.messages.engines.chunks import ChunkAssembly, ChunkBeforeRange
from pulsar_fleet.messages.engines.entry import EntryEngine
from pulsar_fleet.messages.protocol.stored_entry import Corrupt
from pulsar_fleet.messages.protocol.stored_message import EntryContent, StoredMessage, read_content, unpack
from pulsar_fleet.messages.ranges import Range


class MessageEngine:
    """Reads messages of one cluster over the connections of its engine of entries. Not thread-safe."""

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
