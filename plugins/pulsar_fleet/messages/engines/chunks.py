"""Chunked messages: one message in several entries, which may lie in two ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol.stored_message import EntryContent
from pulsar_fleet.messages.ranges import LOOKBACK_ENTRIES, Range

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
