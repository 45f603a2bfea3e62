"""A proxy of HTTP in front of several brokers that follows their redirects itself, as Pulsar's own proxy does."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from itertools import cycle
from types import TracebackType
from typing import Self

import httpx
from aiohttp import web


class FollowingProxy:
    """Forwards each request to the next of `upstreams`. Use it with `async with`.

    :param tls: serves https with this certificate.
    """

    def __init__(self, upstreams: Sequence[str], tls: ssl.SSLContext) -> None:
        self._next = cycle(upstreams)
        self._tls = tls

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._http = httpx.AsyncClient()
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.url = f"https://localhost:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._http.aclose()

    async def _forward(self, request: web.Request) -> web.Response:
        url, body = f"{next(self._next)}{request.raw_path}", await request.read()
        headers = {"Authorization": request.headers["Authorization"], "Content-Type": request.content_type}
        for _ in range(5):
            answer = await self._http.request(request.method, url, headers=headers, content=body)
            if answer.status_code != 307:
                break
            url = answer.headers["Location"]
        return web.Response(status=answer.status_code, body=answer.content, content_type="application/json")
