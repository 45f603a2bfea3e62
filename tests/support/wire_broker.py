"""A socket that answers the binary protocol as a broker does, with what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from tests.support.protobuf_fields import frame, number, text

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api

CLOSED = b""
CONNECTED = frame(api.CONNECTED)


@asynccontextmanager
async def wire_broker(
    answer: Callable[[api.BaseCommand], bytes], *, connected: bytes = CONNECTED
) -> AsyncIterator[ClusterConnection]:
    """It serves every topic itself.

    :param answer: to each command but those that connect and look up; `CLOSED` ends the connection.
    :param connected: what it answers to a client that connects.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                command = api.BaseCommand.FromString((await reader.readexactly(size))[4:])
                place = text(1, url) + number(3, 1) + number(4, command.lookup.request_id)
                usual = {api.CONNECT: connected, api.LOOKUP: frame(api.LOOKUP_RESPONSE, place)}
                content = usual[command.type] if command.type in usual else answer(command)
                if content == CLOSED:
                    break
                writer.write(content)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = "pulsar://{}:{}".format(*server.sockets[0].getsockname())
    async with server:
        yield ClusterConnection(name="blue", admin_url="http://127.0.0.1:9", service_url=url)
