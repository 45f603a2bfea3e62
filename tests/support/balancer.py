"""A load balancer of TCP connections in front of real brokers: each new connection goes to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Balancer:
    """Forwards to `upstreams`, URLs of one scheme. Use it with `async with`."""

    def __init__(self, upstreams: Sequence[str]) -> None:
        parts = [urlsplit(url) for url in upstreams]
        self._scheme = parts[0].scheme
        self._connections: set[asyncio.Task[None]] = set()
        self._next = cycle((part.hostname, part.port) for part in parts)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"{self._scheme}://localhost:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.create_task(self._connected(reader, writer)))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = next(self._next)
        upstream_reader, upstream_writer = await asyncio.open_connection(host, port)
        try:
            await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))
        finally:
            for end in (writer, upstream_writer):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
