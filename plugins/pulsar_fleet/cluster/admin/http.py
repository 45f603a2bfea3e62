"""HTTP to the brokers of one cluster: rate limit, retries, safe redirects, errors by who must act."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Self, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx
import tenacity

from pulsar_fleet.cluster.admin.call import require_exact_path
from pulsar_fleet.cluster.admin.error_map import failure, read_reason
from pulsar_fleet.cluster.admin.probes import refused, untrusted, wrong_protocol
from pulsar_fleet.cluster.admin.transport import Transport
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import (
    FleetError,
    InvalidRequest,
    PreconditionFailed,
    Unavailable,
)
from pulsar_fleet.cluster.json import Json

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


async def retried(
    call: Callable[[], Awaitable[Answer]], *, seconds: float, answered_seconds: float | None, from_failure: bool
) -> Answer:
    """The answer of a call, which is made again while it is `Unavailable`, at growing intervals.

    :param seconds: for how long; then the last failure is raised.
    :param answered_seconds: for how long a failure that a broker answered is retried, if that is less.
    :param from_failure: whether the time counts from the first failure, and not from the beginning of the call.
    """
    began = time.monotonic()
    try:
        # Only failures go through tenacity, which needs a third of the CPU time of a call.
        return await call()
    except Unavailable as error:
        first = [error]
    if from_failure:
        began = time.monotonic()

    async def attempt() -> Answer:
        if first:
            raise first.pop()
        return await call()

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Unavailable),
        stop=_stop_after(began, seconds, answered_seconds),
        wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=3.0, jitter=0.3),
        before_sleep=_log_retry,
        reraise=True,
    )
    answer: Answer = await retrying(attempt)
    return answer


def _stop_after(
    began: float, seconds: float, answered_seconds: float | None
) -> Callable[[tenacity.RetryCallState], bool]:
    """Give up after `seconds`, and after `answered_seconds` (if that is less) on a failure that a broker answered."""

    def stop(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        answered = isinstance(error, FleetError) and error.status is not None
        limit = seconds if answered_seconds is None or not answered else min(answered_seconds, seconds)
        return time.monotonic() - began >= limit

    return stop


def _log_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.info("try %d failed, again in %.1f s: %s", state.attempt_number, state.upcoming_sleep, error)


_BASIC, _BEARER = "Basic ", "Bearer "
MAX_REDIRECTS = 5


class BrokerHttp:
    """Calls to `/admin/v2` and `/lookup/v2` of one cluster.

    :param connection: addresses and credentials; its `max_connections` limits concurrent calls.
    :param retry_seconds: for how long an `Unavailable` failure is retried before it is raised: from the first failure
        on, or from the beginning of the call if this is less than the connection's timeout.
    :param calls_per_second: rate limit of calls, without retries and redirects; 0 is no limit.

    HTTP libraries drop the credentials on a 307 to another broker (another port is another origin). So redirects are
    followed here; the token is sent only to hosts of this cluster, and never from https to http.
    """

    def __init__(
        self, connection: ClusterConnection, *, retry_seconds: float = 30.0, calls_per_second: float = 0.0
    ) -> None:
        self.connection = connection
        self.retry_seconds = retry_seconds
        self.rate_limiter = RateLimiter(calls_per_second)
        self.calls = 0
        self._answered = False
        self._admin_urls = connection.admin_urls
        self._own_hosts = {*(urlsplit(url).hostname for url in self._admin_urls), *connection.broker_hosts}
        self._transport = Transport(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._transport.aclose()

    @property
    def admin_url(self) -> str:
        """The admin URL that is called: of several the first, or the one behind the last that did not answer."""
        return self._admin_urls[0]

    def trust_hosts(self, hosts: set[str]) -> None:
        """Allow redirects with credentials to `hosts`, the cluster's own brokers."""
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
        answered_retry_seconds: float | None = None,
        keep_alive: bool = True,
    ) -> httpx.Response:
        """Make one call, retry it while it is `Unavailable`, follow redirects to the owner; the answer is 2xx.

        :param path: absolute path, such as `/admin/v2/clusters`.
        :param has_body: send `body` as JSON even when it is None.
        :param base: URL of another broker, instead of `admin_url`.
        :param answered_retry_seconds: for how long a failure that a broker answered is retried, if that is less.
        :param keep_alive: whether a later call may use the connection.
        :raises FleetError: by who must act; the message contains the broker's reason.
        """
        require_exact_path(path)
        await self.rate_limiter.acquire()
        content = json.dumps(body).encode() if has_body or body is not None else None
        query = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (params or {}).items()
        }
        return await retried(
            partial(self._follow, method, base, path, query, content, content_type, keep_alive),
            seconds=self.retry_seconds,
            answered_seconds=answered_retry_seconds,
            # One call without an answer must not use up the time for its retries.
            from_failure=self.retry_seconds >= self.connection.timeout_seconds,
        )

    def document(self, answer: httpx.Response) -> Json:
        """The JSON of an answer, None for an empty one; an answer that is not JSON is `InvalidRequest`."""
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise self.no_broker(answer.request.method, str(answer.url), "was not answered with JSON") from error

    async def _follow(
        self,
        method: str,
        base: str | None,
        path: str,
        query: Mapping[str, str],
        content: bytes | None,
        content_type: str,
        keep_alive: bool,
    ) -> httpx.Response:
        url = (base or self.admin_url).rstrip("/") + path
        target = f"{url}?{urlencode(query, quote_via=quote)}" if query else url
        authorization, renewed = await self._authorization(), False
        for _ in range(MAX_REDIRECTS):
            answer = await self._send(method, target, content, content_type, authorization, keep_alive=keep_alive)
            if authorization and not renewed and _is_unauthenticated(answer):
                # It was rotated, or revoked before its time: a new one is tried once.
                before, authorization, renewed = authorization, await self._authorization(authorization), True
                if authorization != before:
                    continue
            if answer.status_code not in (302, 307, 308):
                if answer.status_code >= 300:
                    raise failure(self.connection.name, method, urlsplit(target).path, answer)
                return answer
            target = self.connection.reachable(urljoin(target, answer.headers["Location"]))
            await self._learn_brokers(target, authorization)
        raise Unavailable(
            f"{self.connection.name}: {method} {path} was redirected {MAX_REDIRECTS} times; "
            "the topic's owner is moving.",
            cluster=self.connection.name,
        )

    async def _authorization(self, refused: str | None = None) -> str | None:
        """The header of that name, or None without credentials.

        :param refused: the header that a broker did not accept.
        """
        if self.connection.user:
            text = f"{self.connection.user}:{self.connection.password}"
            return f"{_BASIC}{base64.b64encode(text.encode()).decode()}"
        token = await self._token(refused.removeprefix(_BEARER) if refused else None)
        return f"{_BEARER}{token}" if token else None

    async def _token(self, refused: str | None = None) -> str | None:
        """The token to send; the issuer of OAuth 2.0 is called in a thread, since that blocks."""
        oauth2 = self.connection.oauth2
        if oauth2 is None:
            return self.connection.read_token()
        cached = oauth2.cached_token()
        if cached and cached != refused:
            return cached
        return await asyncio.to_thread(self.connection.read_token, refused)

    async def _learn_brokers(self, target: str, authorization: str | None) -> None:
        if urlsplit(target).hostname in self._own_hosts or not authorization:
            return
        url = f"{self.admin_url}/admin/v2/brokers"
        listed = await self._send("GET", url, None, authorization=authorization)
        if listed.status_code == 200:
            self.trust_hosts({host for entry in listed.json() if (host := urlsplit(f"//{entry}").hostname)})

    async def _send(
        self,
        method: str,
        url: str,
        content: bytes | None,
        content_type: str = "application/json",
        authorization: str | None = None,
        *,
        keep_alive: bool = True,
    ) -> httpx.Response:
        self.calls += 1
        headers = {"Content-Type": content_type, **self._credentials(url, authorization)}
        if not keep_alive:
            headers["Connection"] = "close"
        try:
            # As a stream, since for `content` httpx computes headers that aiohttp writes anyway.
            request = httpx.Request(method, url, headers=headers, stream=httpx.ByteStream(content or b""))
            answer = await self._transport.handle_async_request(request)
        except httpx.RemoteProtocolError as error:
            raise self.no_broker(method, url, "was not answered with HTTP", await wrong_protocol(url)) from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            if distrust := untrusted(self.connection, _origin(url), error):
                raise distrust from error
            if self._may_be_wrong_protocol(error):
                if url.startswith("https:") and (refusal := await refused(self.connection, _origin(url))):
                    raise refusal from error
                if cause := await wrong_protocol(url):
                    raise self.no_broker(method, url, "got no answer", cause) from error
            self._leave(_origin(url))
            raise Unavailable(
                f"{self.connection.name}: {method} {urlsplit(url).path} at {_origin(url)} got no answer: "
                f"{str(error) or type(error).__name__}.",
                cluster=self.connection.name,
            ) from error
        self._answered = True
        return answer

    def _leave(self, origin: str) -> None:
        """Call the next admin URL from now on, where this one did not answer."""
        if _origin(self.admin_url) == origin:
            self._admin_urls = (*self._admin_urls[1:], self._admin_urls[0])

    def _may_be_wrong_protocol(self, error: Exception) -> bool:
        """Whether a port accepted a connection and then ended it, and no broker has answered yet."""
        if isinstance(error.__cause__, ssl.SSLError):
            return not self._answered
        refused = isinstance(error, httpx.ConnectError | httpx.InvalidURL) or isinstance(error.__cause__, TimeoutError)
        return not (refused or self._answered)

    def no_broker(self, method: str, url: str, problem: str, cause: str = "") -> InvalidRequest:
        """The error for an address that is not the admin API of a cluster.

        :param cause: what the port speaks, and the URL to use, if that is known.
        """
        if not cause:
            path = urlsplit(self.admin_url).path.strip("/")
            remedy = f"remove the path /{path} from the admin URL" if path else "check the admin URL"
            cause = f"{method} {urlsplit(url).path} {problem}: {remedy} of this connection"
        text = f"{self.connection.name}: {_origin(url)} is not an admin API: {cause}."
        return InvalidRequest(text, cluster=self.connection.name)

    def _credentials(self, url: str, authorization: str | None) -> dict[str, str]:
        if not authorization:
            return {}
        parts = urlsplit(url)
        downgrade = self.admin_url.startswith("https:") and parts.scheme != "https"
        own = parts.hostname in self._own_hosts or self.connection.is_of_broker(str(parts.hostname))
        if not own or downgrade:
            raise PreconditionFailed(
                f"{self.connection.name} redirected a call to {_origin(url)}, which is not one of its brokers "
                'or not encrypted; the credentials were not sent there. If it is one, name it in "broker_hosts" of the '
                "connection, since only a superuser may list them.",
                cluster=self.connection.name,
            )
        return {"Authorization": authorization}


def _is_unauthenticated(answer: httpx.Response) -> bool:
    """Whether a broker does not accept the token, which it answers differently from a role without the right."""
    return answer.status_code == 401 and not read_reason(answer)[1]


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class RateLimiter:
    """Spaces the starts of calls evenly.

    :param per_second: rate of calls; 0 is no limit.
    """

    def __init__(self, per_second: float = 0.0) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._next = 0.0

    async def acquire(self) -> None:
        """Wait until the next call may start."""
        if not self._gap:
            return
        now = time.monotonic()
        begin = max(self._next, now)
        self._next = begin + self._gap
        if begin > now:
            await asyncio.sleep(begin - now)
