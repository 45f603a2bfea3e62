"""The HTTP library under the admin client: aiohttp, chosen by `tests/bench/test_snapshot.py` for its CPU per call."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, read to its end; `headers` are found by their name in any case."""

    method: str
    url: str
    status_code: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode(errors="replace")

    def json(self) -> Json:
        """The body as JSON; `ValueError` if it is none."""
        return json.loads(self.content)


class Transport:
    """Sends requests as they are: no retries, no redirects, no cookies, no proxies from the environment."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._trust = _trust(connection)
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> Answer:
        """One request; `url` is sent as it is encoded.

        :raises aiohttp.ClientError, TimeoutError: nothing was answered, or not in HTTP (`ClientResponseError`).
        """
        if self._session is None:
            self._session = self._open()
        asked = self._session.request(
            method, URL(url, encoded=True), headers=headers, data=content, allow_redirects=False
        )
        async with asked as answer:
            return Answer(method, url, answer.status, answer.headers, await answer.read())

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        # A session belongs to the loop in which it is made. Waiting for one of our own connections is no failure, so
        # there is no limit to the whole: thousands of calls may be started at once.
        seconds = self._connection.timeout_seconds
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connection.max_connections, ssl=self._trust),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _trust(connection: ClusterConnection) -> ssl.SSLContext | bool:
    if not connection.admin_url.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=connection.tls_trust_file)
    if connection.tls_certificate_file:
        context.load_cert_chain(connection.tls_certificate_file, connection.tls_key_file)
    return context
