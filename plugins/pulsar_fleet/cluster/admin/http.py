"""HTTP to the brokers of one cluster: bounded, retried, redirected with care, errors by who must act."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx
import tenacity

from pulsar_fleet.cluster.admin.error_map import denial, read_reason
from pulsar_fleet.cluster.admin.transport import Transport
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import (
    Conflict,
    FleetError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unavailable,
)
from pulsar_fleet.cluster.json import Json


class RateLimiter:
    """Lets calls begin evenly, one after the other.

    :param per_second: how many of them; 0 lets each begin at once.
    """

    def __init__(self, per_second: float = 0.0) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._next = 0.0

    async def acquire(self) -> None:
        """Wait for the caller's turn."""
        if not self._gap:
            return
        now = time.monotonic()
        begin = max(self._next, now)
        self._next = begin + self._gap
        if begin > now:
            await asyncio.sleep(begin - now)


log = logging.getLogger(__name__)

MAX_REDIRECTS = 5
RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
ALREADY_MIGRATED = "already migrated"
SCHEMA_REFUSED = "Error during schema compatibility check"
_BY_STATUS: Mapping[int, type[FleetError]] = {
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
}


class BrokerHttp:
    """Calls to `/admin/v2` and `/lookup/v2` of one cluster.

    :param connection: where and who; its `max_connections` bounds the calls in flight.
    :param retry_seconds: for how long a `Unavailable` failure is tried again before it is raised.
    :param calls_per_second: how many calls begin in a second at most, retries and redirects apart; 0 is no bound.

    HTTP libraries follow a 307 to another broker without the credentials (another port is another origin), so redirects
    are followed here, and the token is sent only to hosts of this cluster, never down from https to http.
    """

    def __init__(
        self, connection: ClusterConnection, *, retry_seconds: float = 30.0, calls_per_second: float = 0.0
    ) -> None:
        self.connection = connection
        self.retry_seconds = retry_seconds
        self.rate_limiter = RateLimiter(calls_per_second)
        self.calls = 0
        self._own_hosts = {urlsplit(connection.admin_url).hostname, *connection.broker_hosts}
        self._transport = Transport(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.aclose()

    def trust_hosts(self, hosts: set[str]) -> None:
        """Allow redirects with credentials to `hosts`: the cluster's own brokers."""
        self._own_hosts |= hosts

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | bool] | None = None,
        body: Json = None,
        has_body: bool = False,
        content_type: str = "application/json",
        base: str | None = None,
        patience: float | None = None,
    ) -> httpx.Response:
        """One call, retried while it fails for a passing reason, redirected to the owner; the answer is 2xx.

        :param path: absolute path, such as `/admin/v2/clusters`.
        :param has_body: send `body` as JSON even when it is None.
        :param base: another broker's URL instead of the connection's.
        :param patience: seconds for which an answered failure is tried again, where that is less than for others.
        :raises FleetError: by who must act; the message holds the broker's own reason.
        """
        await self.rate_limiter.acquire()
        url = (base or self.connection.admin_url).rstrip("/") + path
        content = json.dumps(body).encode() if has_body or body is not None else None
        query = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (params or {}).items()
        }
        return await self._retried(partial(self._follow, method, url, query, content, content_type), patience)

    async def _retried(self, follow: Callable[[], Awaitable[httpx.Response]], patience: float | None) -> httpx.Response:
        began = time.monotonic()
        try:
            # Only a failure comes to tenacity, which takes as much CPU as a third of a call.
            return await follow()
        except Unavailable as error:
            first = [error]

        async def attempt() -> httpx.Response:
            if first:
                raise first.pop()
            return await follow()

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Unavailable),
            stop=_stop_after(began, self.retry_seconds, patience),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=3.0, jitter=0.3),
            before_sleep=_log_retry,
            reraise=True,
        )
        answer: httpx.Response = await retrying(attempt)
        return answer

    def document(self, answer: httpx.Response) -> Json:
        """The JSON of an answer, None for an empty one; `InvalidRequest` where something else than a broker
        answered.
        """
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise self._no_broker(answer.request.method, str(answer.url), "JSON") from error

    async def _follow(
        self, method: str, url: str, query: Mapping[str, str], content: bytes | None, content_type: str
    ) -> httpx.Response:
        target = f"{url}?{urlencode(query, quote_via=quote)}" if query else url
        for _ in range(MAX_REDIRECTS):
            answer = await self._send(method, target, content, content_type)
            if answer.status_code not in (302, 307, 308):
                return self._checked(method, target, answer)
            target = urljoin(target, answer.headers["Location"])
            await self._learn_brokers(target)
        raise Unavailable(
            f"{self.connection.name}: {method} {urlsplit(url).path} was redirected {MAX_REDIRECTS} times; "
            "the topic's owner is moving.",
            cluster=self.connection.name,
        )

    async def _learn_brokers(self, target: str) -> None:
        if urlsplit(target).hostname in self._own_hosts or not self.connection.read_token():
            return
        listed = await self._send("GET", f"{self.connection.admin_url.rstrip('/')}/admin/v2/brokers", None)
        if listed.status_code == 200:
            self.trust_hosts({host for entry in listed.json() if (host := urlsplit(f"//{entry}").hostname)})

    async def _send(
        self, method: str, url: str, content: bytes | None, content_type: str = "application/json"
    ) -> httpx.Response:
        self.calls += 1
        headers = {"Content-Type": content_type, **self._credentials(url)}
        try:
            # As a stream, since for `content` httpx works out headers that aiohttp writes anyway.
            request = httpx.Request(method, url, headers=headers, stream=httpx.ByteStream(content or b""))
            return await self._transport.handle_async_request(request)
        except httpx.RemoteProtocolError as error:
            raise self._no_broker(method, url, "HTTP") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise PermissionDenied(
                    f"{self.connection.name}: the certificate of {_origin(url)} is not trusted: {error}. "
                    'Name its authority in the connection ("tls_trust_file").',
                    cluster=self.connection.name,
                ) from error
            raise Unavailable(
                f"{self.connection.name}: {method} {urlsplit(url).path} at {_origin(url)} got no answer: "
                f"{str(error) or type(error).__name__}.",
                cluster=self.connection.name,
            ) from error

    def _no_broker(self, method: str, url: str, expected: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self.connection.name}: {_origin(url)} is not an admin API: {method} {urlsplit(url).path} "
            f"was not answered with {expected}. Check the admin URL of this connection.",
            cluster=self.connection.name,
        )

    def _credentials(self, url: str) -> dict[str, str]:
        token = self.connection.read_token()
        if not token:
            return {}
        parts = urlsplit(url)
        downgrade = self.connection.admin_url.startswith("https:") and parts.scheme != "https"
        if parts.hostname not in self._own_hosts or downgrade:
            raise PreconditionFailed(
                f"{self.connection.name} redirected a call to {_origin(url)}, which is not one of its brokers "
                'or not encrypted; the token was not sent there. If it is one, name it in "broker_hosts" of the '
                "connection, since only a superuser may list them.",
                cluster=self.connection.name,
            )
        return {"Authorization": f"Bearer {token}"}

    def _checked(self, method: str, url: str, answer: httpx.Response) -> httpx.Response:
        status = answer.status_code
        if status < 300:
            return answer
        reason, knew_us = read_reason(answer)
        text = f"{self.connection.name} answered {status} to {method} {urlsplit(url).path}: {reason}"
        if denied := denial(self.connection.name, status, text, reason, knew_us=knew_us):
            raise denied
        if status == 500 and ALREADY_MIGRATED in reason:
            raise Conflict(text, cluster=self.connection.name, status=status)
        if status == 500 and SCHEMA_REFUSED in reason:
            raise InvalidRequest(text, cluster=self.connection.name, status=status)
        if status in RETRY_STATUSES:
            raise Unavailable(text, cluster=self.connection.name, status=status)
        raise _BY_STATUS.get(status, InvalidRequest)(text, cluster=self.connection.name, status=status)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _stop_after(began: float, seconds: float, patience: float | None) -> Callable[[tenacity.RetryCallState], bool]:
    """Give up after `seconds`, and already after `patience` (if that is less) on what a broker answered itself."""

    def stop(state: tenacity.RetryCallState) -> bool:
        failure = state.outcome.exception() if state.outcome else None
        answered = isinstance(failure, FleetError) and failure.status is not None
        limit = seconds if patience is None or not answered else min(patience, seconds)
        return time.monotonic() - began >= limit

    return stop


def _log_retry(state: tenacity.RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome else None
    log.info("try %d failed, again in %.1f s: %s", state.attempt_number, state.upcoming_sleep, failure)
