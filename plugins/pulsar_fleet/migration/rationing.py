"""How often a remedy may be tried by itself: what does not help twice is a person's (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_fleet.migration.incident import Incident

TRIES = 2
GAP_SECONDS = 30.0
NAMESPACE_TRIES = 12
"""Remedies of any kind: a namespace that needs more of them is not healing."""


@dataclass(frozen=True, slots=True)
class Treated:
    """A remedy that was tried: of which incident, in which namespace, when (seconds since 1970)."""

    incident: str
    namespace: str
    at: float


def may_treat(incident: Incident, treated: Sequence[Treated], now: float) -> bool:
    """Whether the remedy may be tried (again) now, by itself."""
    return incident.is_automatic and not is_exhausted(incident, treated) and not _too_soon(incident, treated, now)


def is_exhausted(incident: Incident, treated: Sequence[Treated]) -> bool:
    """Whether only a person can go on: it was tried often enough."""
    same = sum(one.incident == incident.id for one in treated)
    there = sum(one.namespace == incident.namespace for one in treated)
    return incident.is_automatic and (same >= TRIES or there >= NAMESPACE_TRIES)


def _too_soon(incident: Incident, treated: Sequence[Treated], now: float) -> bool:
    return any(one.incident == incident.id and now - one.at < GAP_SECONDS for one in treated)
