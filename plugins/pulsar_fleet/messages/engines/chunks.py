"""Messages in chunks: one message over several entries, which a range may cut in two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.ranges import LOOK_BACK, Range

CHUNK_NUMBER = "x-pulsar-chunk-id"
Found = TypeVar("Found")


class BegunBefore(Conflict):
    """A message in chunks ends in the range, but began before the reading did."""

    def __init__(self, wanted: Range, cluster: str) -> None:
        super().__init__(
            f"A message in chunks of {wanted.topic} on {cluster} ends between {wanted.first} and {wanted.last}, but "
            f"begins more than {LOOK_BACK:,} entries before, or among more unfinished ones than a client keeps.",
            cluster=cluster,
        )


def reaching_back(wanted: Range, read: Callable[[Range], Found]) -> Found:
    """What `read` makes of the range; if a message in chunks began before it, of a reading that begins earlier."""
    try:
        return read(wanted)
    except BegunBefore:
        if wanted.lookback is None:
            raise
        return read(wanted.reaching_back())


def ends_in_a_chunk(connection: ClusterConnection, wanted: Range) -> bool:
    """Whether the last entry is a chunk: if its message was never finished, no reader gets it; asked over HTTP."""
    with ThreadPoolExecutor(1) as apart:  # the caller's thread may run an event loop
        return apart.submit(lambda: asyncio.run(_ends_in_a_chunk(connection, wanted))).result()


async def _ends_in_a_chunk(connection: ClusterConnection, wanted: Range) -> bool:
    # Needs an HTTP client, which an executor that meets no such topic can do without.
    from pulsar_fleet.cluster.admin.client import AdminClient

    try:
        async with AdminClient(connection, retry_seconds=5) as admin:
            return CHUNK_NUMBER in await admin.entry_properties(TopicName.parse(wanted.topic), wanted.last)
    except FleetError:
        return False
