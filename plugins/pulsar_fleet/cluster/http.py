"""HTTP to the brokers of one cluster: bounded, retried, redirected with care, errors by who must act."""

from __future__ import annotations

import html
import json
import logging
import re
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Self
from urllib.parse import urljoin, urlsplit

import aiohttp
import httpx
import tenacity
from httpx_aiohttp import AiohttpTransport

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import (
    Conflict,
    Denied,
    FleetError,
    Missing,
    Refused,
    Rejected,
    Transient,
)
from pulsar_fleet.cluster.json import Json

log = logging.getLogger(__name__)

MAX_REDIRECTS = 5
RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
ALREADY_MIGRATED = "already migrated"
_BY_STATUS: Mapping[int, type[FleetError]] = {401: Denied, 403: Denied, 404: Missing, 409: Conflict}


class BrokerHttp:
    """Calls to `/admin/v2` and `/lookup/v2` of one cluster.

    :param connection: where and who; its `max_connections` bounds the calls in flight.
    :param retry_seconds: for how long a `Transient` failure is tried again before it is raised.

    httpx would follow a 307 to another broker without the credentials (another port is another origin), so redirects
    are followed here, and the token is sent only to hosts of this cluster, never down from https to http.
    """

    def __init__(self, connection: ClusterConnection, *, retry_seconds: float = 30.0) -> None:
        self.connection = connection
        self.retry_seconds = retry_seconds
        self.calls = 0
        self._own_hosts = {urlsplit(connection.admin_url).hostname}
        self._client = httpx.AsyncClient(
            transport=AiohttpTransport(
                verify=_trust(connection),
                limits=httpx.Limits(max_connections=connection.max_connections),
            ),
            # Waiting for one of our own connections is no failure: thousands of calls may be started at once.
            timeout=httpx.Timeout(connection.timeout_seconds, pool=None),
            follow_redirects=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

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
    ) -> httpx.Response:
        """One call, retried while it fails for a passing reason, redirected to the owner; the answer is 2xx.

        :param path: absolute path, such as `/admin/v2/clusters`.
        :param has_body: send `body` as JSON even when it is None.
        :param base: another broker's URL instead of the connection's.
        :raises FleetError: by who must act; the message holds the broker's own reason.
        """
        url = (base or self.connection.admin_url).rstrip("/") + path
        content = json.dumps(body).encode() if has_body or body is not None else None
        query = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (params or {}).items()
        }
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Transient),
            stop=tenacity.stop_after_delay(self.retry_seconds),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=3.0, jitter=0.3),
            before_sleep=_log_retry,
            reraise=True,
        )
        answer: httpx.Response = await retrying(self._follow, method, url, query, content, content_type)
        return answer

    def document(self, answer: httpx.Response) -> Json:
        """The JSON of an answer, None for an empty one; `Rejected` where something else than a broker answered."""
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise self._no_broker(answer.request.method, str(answer.request.url), "JSON") from error

    async def _follow(
        self, method: str, url: str, query: Mapping[str, str], content: bytes | None, content_type: str
    ) -> httpx.Response:
        target = str(httpx.URL(url, params=dict(query))) if query else url
        for _ in range(MAX_REDIRECTS):
            answer = await self._send(method, target, content, content_type)
            if answer.status_code not in (302, 307, 308):
                return self._checked(method, target, answer)
            target = urljoin(target, answer.headers["Location"])
            await self._learn_brokers(target)
        raise Transient(
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
            return await self._client.request(method, url, content=content, headers=headers)
        except httpx.HTTPError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY" in str(error):
                raise Denied(
                    f"{self.connection.name}: the certificate of {_origin(url)} is not trusted: {error}. "
                    'Name its authority in the connection ("tls_trust_file").',
                    cluster=self.connection.name,
                ) from error
            raise Transient(
                f"{self.connection.name}: {method} {urlsplit(url).path} at {_origin(url)} got no answer: "
                f"{str(error) or type(error).__name__}.",
                cluster=self.connection.name,
            ) from error
        except aiohttp.ClientResponseError as error:
            # The transport lets this one through as it is.
            raise self._no_broker(method, url, "HTTP") from error

    def _no_broker(self, method: str, url: str, expected: str) -> Rejected:
        return Rejected(
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
            raise Refused(
                f"{self.connection.name} redirected a call to {_origin(url)}, which is not one of its brokers "
                "or not encrypted; the token was not sent there.",
                cluster=self.connection.name,
            )
        return {"Authorization": f"Bearer {token}"}

    def _checked(self, method: str, url: str, answer: httpx.Response) -> httpx.Response:
        status = answer.status_code
        if status < 300:
            return answer
        reason, authenticated = _reason(answer)
        text = f"{self.connection.name} answered {status} to {method} {urlsplit(url).path}: {reason}"
        if status == 401 and not authenticated:
            text = (
                f"{self.connection.name} does not accept our credentials (401): the token is missing, expired "
                "or signed with another key. Check the token of this connection."
            )
        if status == 500 and ALREADY_MIGRATED in reason:
            raise Conflict(text, cluster=self.connection.name, status=status)
        if status in RETRY_STATUSES:
            raise Transient(text, cluster=self.connection.name, status=status)
        raise _BY_STATUS.get(status, Rejected)(text, cluster=self.connection.name, status=status)


def _trust(connection: ClusterConnection) -> ssl.SSLContext | bool:
    if not connection.admin_url.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=connection.tls_trust_file)
    if connection.tls_certificate_file:
        context.load_cert_chain(connection.tls_certificate_file, connection.tls_key_file)
    return context


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _reason(answer: httpx.Response) -> tuple[str, bool]:
    """The broker's reason in one line, and whether it knew us (a refusal by role is JSON, a bad token is HTML)."""
    try:
        reason = str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        # Some refusals, such as those of a schema, are only told in the title of an error page.
        title = re.search(r"<title>(?:Error \d+ )?(.*?)</title>", answer.text, re.DOTALL)
        text = html.unescape(" ".join(title[1].split())) if title else answer.text.strip()
        return (text.splitlines() or ["no reason given"])[0][:400], False
    message = reason.partition("Message:")[2] or reason
    return " ".join(message.partition("Stacktrace")[0].split())[:400], True


def _log_retry(state: tenacity.RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome else None
    log.info("try %d failed, again in %.1f s: %s", state.attempt_number, state.upcoming_sleep, failure)
