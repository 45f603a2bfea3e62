"""Measure the clock skew of a cluster by the `Date` header of its answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from pulsar_fleet.cluster.admin.client import ADMIN, AdminClient

_ASKED = 3
_RESOLUTION = 1.0


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """Seconds by which a cluster's clock is ahead of ours, ± `uncertainty` seconds."""

    ahead: float
    uncertainty: float


async def measure_clock_skew(admin: AdminClient) -> ClockSkew:
    """Measure three times and return the most precise result; the header has whole seconds, so ± 0.5 s remain."""
    measurements = [await _ask(admin) for _ in range(_ASKED)]
    return min(measurements, key=lambda skew: skew.uncertainty)


async def _ask(admin: AdminClient) -> ClockSkew:
    sent = time.time()
    answer = await admin.http.call("GET", f"{ADMIN}/brokers/version")
    received = time.time()
    broker_time = parsedate_to_datetime(answer.headers["Date"]).timestamp() + _RESOLUTION / 2
    return ClockSkew(round(broker_time - (sent + received) / 2, 3), round((_RESOLUTION + received - sent) / 2, 3))
