"""An HTTP proxy in front of a real broker that can fail in the ways of a network and of a broker under load."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from email.utils import formatdate, parsedate_to_datetime
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection

END_OF_HEAD = b"\r\n\r\n"
_DATE = re.compile(rb"\r\nDate: ([^\r]+)\r\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to one request.

    :param answer: bytes sent instead of the broker's answer, before the connection is closed; None to forward.
    :param seconds: to wait before anything is done.
    :param forwarded: the broker gets the request although its answer is thrown away.
    """

    answer: bytes | None = None
    seconds: float = 0.0
    forwarded: bool = False


NONE = Fault()
CUT = Fault(answer=b"")
LOST_ANSWER = Fault(answer=b"", forwarded=True)
HANG = Fault(seconds=3600)


def slow(seconds: float) -> Fault:
    """The broker's own answer, late."""
    return Fault(seconds=seconds)


def raw(answer: bytes) -> Fault:
    """Bytes that need not be HTTP."""
    return Fault(answer=answer)


def answer(status: int, body: str = "", **headers: str) -> Fault:
    """An answer of the proxy's own, such as 503."""
    lines = [f"HTTP/1.1 {status} Injected", f"Content-Length: {len(body.encode())}", "Connection: close"]
    lines += [f"{key}: {value}" for key, value in headers.items()]
    return Fault(answer="\r\n".join(lines).encode() + END_OF_HEAD + body.encode())


def redirect(url: str) -> Fault:
    """A 307 to `url`."""
    return answer(307, Location=url)


@dataclass(slots=True)
class CallFault:
    """A fault of the calls that match a pattern, so many times; by default always."""

    pattern: str
    fault: Fault
    times: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Proxy:
    """Forwards every request to `upstream` (`http://host:port`), except for the faults that wait in `faults`.

    One request per connection, so that a fault hits exactly one request. Use it with `async with`.

    `answers` are faults of single calls: the first whose pattern matches `METHOD /path?query` is the request's. A call
    that was answered as often as its number says is forwarded from then on.

    `date_ahead` are whole seconds by which the `Date` of its answers is shifted, as if its clock was ahead.

    :param tls: context of the proxy's own side; None for plain HTTP.
    """

    def __init__(self, upstream: str, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.faults: deque[Fault] = deque()
        self.otherwise = NONE
        self.answers: list[CallFault] = []
        self.date_ahead = 0
        self.seen: list[Request] = []
        self._upstream = urlsplit(upstream)
        self._host = host
        self._tls = tls
        self._closing = asyncio.Event()
        self._handling: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://{self._host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.close()
        await asyncio.gather(*self._handling)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._handle(reader, writer))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that gave up in the meantime is one of the cases under test.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(await self._answer(reader))
            await writer.drain()
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(END_OF_HEAD)
        first, *lines = head.decode().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append(Request(method, target, headers, body))
        fault = self.faults.popleft() if self.faults else self._fault_of(f"{method} {target}")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), fault.seconds)
        if self._closing.is_set() or (fault.answer is not None and not fault.forwarded):
            return fault.answer or b""
        forwarded = await self._forward(head, body)
        return forwarded if fault.answer is None else fault.answer

    def _fault_of(self, call: str) -> Fault:
        for entry in self.answers:
            if entry.times and re.search(entry.pattern, call):
                entry.times -= 1
                return entry.fault
        return self.otherwise

    def calls(self, pattern: str) -> int:
        """How many requests matched `METHOD /path?query`."""
        return sum(bool(re.search(pattern, f"{request.method} {request.target}")) for request in self.seen)

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        kept = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
        writer.write(b"\r\n".join([*kept, b"Connection: close"]) + END_OF_HEAD + body)
        answered = await reader.read()
        writer.close()
        await writer.wait_closed()
        return _DATE.sub(self._shifted, answered, count=1)

    def _shifted(self, date: re.Match[bytes]) -> bytes:
        seconds = parsedate_to_datetime(date[1].decode()).timestamp() + self.date_ahead
        return b"\r\nDate: %s\r\n" % formatdate(seconds, usegmt=True).encode()


@asynccontextmanager
async def behind(admin: AdminClient, *faults: CallFault) -> AsyncIterator[tuple[AdminClient, Proxy]]:
    """An impatient client of the same cluster, some of whose calls a proxy answers."""
    async with Proxy(admin.connection.admin_url) as proxy:
        proxy.answers = list(faults)
        connection = replace(admin.connection, admin_url=proxy.url)
        async with AdminClient(connection, retry_seconds=0) as through:
            yield through, proxy


async def proxied(through: AdminClient) -> ClusterConnection:
    """The connection of `behind`, by which calls to each single broker go through the proxy too."""
    urls = tuple((broker, through.connection.admin_url) for broker in await through.brokers())
    return replace(through.connection, broker_urls=urls)
