"""A TCP proxy in front of a real broker, which cuts every connection that has brought a number of bytes."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class CuttingProxy:
    """Forwards to `upstream` (`pulsar://host:port`). Use it with `with`.

    :param cut_after: bytes from the broker after which a connection is cut, one number for each of the first
        connections; those that follow are never cut.
    """

    def __init__(self, upstream: str, cut_after: list[int]) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._cut_after = cut_after
        self.connections = 0
        self._threads: list[Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, target: object, *arguments: object) -> None:
        thread = Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._upstream)
                limit = self._cut_after[self.connections] if self.connections < len(self._cut_after) else None
                self.connections += 1
                self._start(self._pump, client, broker, None)
                self._start(self._pump, broker, client, limit)

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        remaining = limit
        with suppress(OSError):
            while remaining is None or remaining > 0:
                data = source.recv(4096 if remaining is None else min(remaining, 4096))
                if not data:
                    break
                sink.sendall(data)
                remaining = None if remaining is None else remaining - len(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()
