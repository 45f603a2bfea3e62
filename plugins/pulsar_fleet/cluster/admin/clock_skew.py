"""Measure the clock skew of a cluster by the `Date` header of its answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.transport import Transport
from pulsar_fleet.cluster.admin.verbs import ADMIN
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable

_ASKED = 3
_RESOLUTION = 1.0
_PATH = f"{ADMIN}/brokers/version"
_PEER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """Seconds by which a cluster's clock is ahead of ours, ± `uncertainty` seconds."""

    ahead: float
    uncertainty: float


async def measure_clock_skew(admin: AdminClient) -> ClockSkew:
    """Measure three times and return the most precise result; the header has whole seconds, so ± 0.5 s remain.

    :raises PreconditionFailed: the answers do not tell a time.
    """
    try:
        return await _measure(lambda: admin.http.call("GET", _PATH))
    except (KeyError, ValueError) as error:
        raise PreconditionFailed(
            f"{admin.connection.name}: the answers of {admin.connection.admin_url} have no valid header `Date`, so its "
            "clock cannot be compared with those of other clusters. Let the proxy in front of the brokers pass it on."
        ) from error


async def measure_peer_clock_skew(connection: ClusterConnection, url: str) -> ClockSkew:
    """Measure at another cluster's address, without credentials: a broker that denies a call sends its time too.

    :param connection: has the certificates to trust; none of its credentials are sent.
    :raises Unavailable: the address gives no answer with a time.
    """
    trusting = ClusterConnection(
        name=connection.name,
        admin_url=url.rstrip("/"),
        tls_trust_file=connection.tls_trust_file,
        timeout_seconds=_PEER_SECONDS,
    )
    transport = Transport(trusting)
    try:
        request = httpx.Request("GET", f"{trusting.admin_url}{_PATH}")
        return await _measure(lambda: transport.handle_async_request(request))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, KeyError, ValueError) as error:
        raise Unavailable(f"{connection.name}: {url} does not tell its time: {error!r}.") from error
    finally:
        await transport.aclose()


async def _measure(call: Callable[[], Awaitable[httpx.Response]]) -> ClockSkew:
    measurements = [await _ask(call) for _ in range(_ASKED)]
    return min(measurements, key=lambda skew: skew.uncertainty)


async def _ask(call: Callable[[], Awaitable[httpx.Response]]) -> ClockSkew:
    sent = time.time()
    answer = await call()
    received = time.time()
    broker_time = parsedate_to_datetime(answer.headers["Date"]).timestamp() + _RESOLUTION / 2
    return ClockSkew(round(broker_time - (sent + received) / 2, 3), round((_RESOLUTION + received - sent) / 2, 3))
