"""The transport of the admin client: httpx on the connections of aiohttp, chosen by `tests/bench/test_snapshot.py`."""

from __future__ import annotations

import functools
import ssl

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport
from httpx_aiohttp.transport import map_aiohttp_exceptions
from yarl import URL

from pulsar_fleet.cluster.connection import ClusterConnection, tls_context


class Transport(AiohttpTransport):
    """Sends requests without retries, redirects, cookies and proxies from the environment.

    Used without an `httpx.AsyncClient`, whose layers cost more CPU time than a call and are not needed.
    """

    def __init__(self, connection: ClusterConnection) -> None:
        super().__init__(verify=_trust(connection), client=self._open)
        self._connection = connection

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request and read the whole response.

        The encoded URL is sent unchanged. `AiohttpTransport` passes it as text, in which aiohttp decodes `%3B`; for a
        broker a path ends at `;`, so that the deletion of topic `a;b` deleted topic `a`.

        :raises httpx.TransportError: no answer, or an answer that is not HTTP (`RemoteProtocolError`).
        """
        if not isinstance(self.client, aiohttp.ClientSession):
            self.client = self.get_client()
        call = self.client.request(
            request.method,
            URL(str(request.url), encoded=True),
            headers=request.headers,
            data=request.read() or None,
            allow_redirects=False,
        )
        with map_aiohttp_exceptions():
            try:
                async with call as answer:
                    content = await answer.read()
            except aiohttp.ClientResponseError as error:
                raise httpx.RemoteProtocolError(str(error), request=request) from error
        # aiohttp has decoded the content already.
        headers = [(name, value) for name, value in answer.raw_headers if name.lower() != b"content-encoding"]
        return httpx.Response(answer.status, headers=headers, content=content, request=request)

    def _open(self) -> aiohttp.ClientSession:
        # A session belongs to the event loop in which it is created. There is no total timeout, since thousands of
        # calls may be started at once, and waiting for a free connection is not a failure.
        seconds = self._connection.timeout_seconds
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connection.max_connections, ssl=self.ssl_context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _trust(connection: ClusterConnection) -> ssl.SSLContext:
    if not connection.admin_url.startswith("https:"):
        return _system_trust()
    return tls_context(connection)


@functools.cache
def _system_trust() -> ssl.SSLContext:
    """For the rare redirect from http to https; cached, since loading it takes 20 ms."""
    return ssl.create_default_context()
