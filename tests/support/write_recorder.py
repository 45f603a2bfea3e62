"""Proxies that note which writes a cluster got and when, so that a test sees who changed it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.proxy import Proxy

WRITES = ("PUT", "POST", "DELETE")


class WriteRecorder(Proxy):
    """Notes the time of each write, those that record leases apart."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.writes: list[tuple[float, str]] = []

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        method, target, _ = head.decode().split("\r\n", 1)[0].split(" ")
        if method in WRITES and "/pulsar/fleet" not in target:
            self.writes.append((time.time(), f"{method} {target} {body.decode()[:80]}"))
        return await super()._forward(head, body)


@contextmanager
def recording(*upstreams: str) -> Iterator[list[WriteRecorder]]:
    """Proxies in a thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    recorders = [WriteRecorder(url) for url in upstreams]
    try:
        for recorder in recorders:
            asyncio.run_coroutine_threadsafe(recorder.__aenter__(), loop).result()
        yield recorders
    finally:
        for recorder in recorders:
            asyncio.run_coroutine_threadsafe(recorder.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
