"""A proxy of HTTP in front of several brokers that follows their redirects itself, as Pulsar's own proxy does."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from itertools import cycle
from types import TracebackType
from typing import Self

import httpx
from aiohttp import web

_PASSED = ("Authorization", "Content-Type")
_OF_THE_CONNECTION = ("connection", "content-encoding", "content-length", "transfer-encoding")


class FollowingProxy:
    """Forwards each request to the next of `upstreams`; below `/broker-0`, to the first. Use it with `async with`.

    :param tls: serves https with this certificate; http without it.
    :param old_seconds: for how long after a write each read gets the answer before it, as of a broker that has not yet
        heard of the write.
    """

    def __init__(
        self, upstreams: Sequence[str], tls: ssl.SSLContext | None = None, *, old_seconds: float = 0.0
    ) -> None:
        self._upstreams = upstreams
        self._old_seconds = old_seconds
        self._written = -old_seconds
        self._remembered: dict[str, web.Response] = {}
        self._next = cycle(upstreams)
        self._tls = tls

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/broker-{number}/{path:.*}", self._forward)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._http = httpx.AsyncClient()
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.url = f"{'https' if self._tls else 'http'}://localhost:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._http.aclose()

    async def _forward(self, request: web.Request) -> web.Response:
        if request.method != "GET":
            self._written = time.monotonic()
        elif time.monotonic() < self._written + self._old_seconds and request.raw_path in self._remembered:
            old = self._remembered[request.raw_path]
            return web.Response(status=old.status, body=old.body, headers=old.headers)
        answer = await self._answer(request)
        if request.method == "GET":
            self._remembered[request.raw_path] = answer
        return answer

    async def _answer(self, request: web.Request) -> web.Response:
        number, body = request.match_info.get("number"), await request.read()
        upstream = self._upstreams[int(number)] if number else next(self._next)
        url = f"{upstream}{request.raw_path.removeprefix(f'/broker-{number}')}"
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        for _ in range(5):
            answer = await self._http.request(request.method, url, headers=headers, content=body)
            if answer.status_code != 307:
                break
            url = answer.headers["Location"]
        # Facts about a message are headers of its own.
        headers = {name: value for name, value in answer.headers.multi_items() if name not in _OF_THE_CONNECTION}
        return web.Response(status=answer.status_code, body=answer.content, headers=headers)
