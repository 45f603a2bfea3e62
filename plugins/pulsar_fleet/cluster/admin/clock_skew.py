"""How far a cluster's clock is from ours, by the `Date` of its answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from pulsar_fleet.cluster.admin.client import ADMIN, AdminClient

_ASKED = 3
_RESOLUTION = 1.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds that a cluster's clock is ahead of ours, give or take `uncertainty` seconds."""

    ahead: float
    uncertainty: float


async def measure_clock(admin: AdminClient) -> Clock:
    """Ask a few times and keep the quickest answer; the header has whole seconds, so half a second stays open."""
    found = [await _ask(admin) for _ in range(_ASKED)]
    return min(found, key=lambda one: one.uncertainty)


async def _ask(admin: AdminClient) -> Clock:
    sent = time.time()
    answer = await admin.http.call("GET", f"{ADMIN}/brokers/version")
    got = time.time()
    there = parsedate_to_datetime(answer.headers["Date"]).timestamp() + _RESOLUTION / 2
    return Clock(round(there - (sent + got) / 2, 3), round((_RESOLUTION + got - sent) / 2, 3))
