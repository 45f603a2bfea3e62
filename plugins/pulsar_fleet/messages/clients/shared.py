"""One client for each connection in a process: consumers share its connections and its two threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_asyncio_client

if TYPE_CHECKING:
    from pulsar.asyncio import Client


@dataclass(slots=True)
class _Shared:
    client: Client
    users: int = 0


_shared: dict[ClusterConnection, _Shared] = {}


@asynccontextmanager
async def shared_client(connection: ClusterConnection) -> AsyncIterator[Client]:
    """The client of a connection; it is closed when its last user leaves.

    :raises FleetError: see `open_client`.
    """
    if connection.oauth2 and connection not in _shared:
        # The issuer may take seconds to answer, and every trigger of the process would wait for it.
        await asyncio.to_thread(connection.read_token)
    shared = _shared.get(connection) or _shared.setdefault(connection, _Shared(open_asyncio_client(connection)))
    shared.users += 1
    try:
        yield shared.client
    finally:
        shared.users -= 1
        if not shared.users:
            del _shared[connection]
            await shared.client.close()
