"""Chunked messages: one message in several entries, which may lie in two ranges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.ranges import LOOKBACK_ENTRIES, Range

CHUNK_NUMBER = "x-pulsar-chunk-id"
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


def with_lookback(entry_range: Range, read: Callable[[Range], Found]) -> Found:
    """The result of `read` for the range; if a chunked message begins before it, for the range with its lookback."""
    try:
        return read(entry_range)
    except ChunkBeforeRange:
        if entry_range.lookback is None:
            raise
        return read(entry_range.from_lookback())


def ends_with_chunk(connection: ClusterConnection, entry_range: Range) -> bool:
    """Whether the last entry is a chunk: readers never get an unfinished chunked message. One HTTP call."""
    with ThreadPoolExecutor(1) as executor:  # the caller's thread may run an event loop
        return executor.submit(lambda: asyncio.run(_ends_with_chunk(connection, entry_range))).result()


async def _ends_with_chunk(connection: ClusterConnection, entry_range: Range) -> bool:
    # Needs an HTTP client, which an executor without chunked topics need not have.
    from pulsar_fleet.cluster.admin.client import AdminClient

    try:
        async with AdminClient(connection, retry_seconds=5) as admin:
            return CHUNK_NUMBER in await admin.entry_properties(TopicName.parse(entry_range.topic), entry_range.last)
    except FleetError:
        return False
