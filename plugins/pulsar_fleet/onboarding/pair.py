"""What the checks of onboarding look at, and how they say what they found (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.change.findings import Finding, Severity
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.states import Snapshot


@dataclass(frozen=True, slots=True)
class Pair:
    """Both clusters; `wanted` is the source in the target's terms."""

    source: Snapshot
    target: Snapshot
    wanted: Snapshot

    def values(self, source: Json, target: Json) -> str:
        """`blue 12, green 8`."""
        return f"{self.source.cluster} {source}, {self.target.cluster} {target}"


def blocker(id_: str, resource: str, evidence: str, consequence: str, remedy: str) -> Finding:
    """A finding that stops the run."""
    return Finding(
        id=id_,
        severity=Severity.BLOCKER,
        resource=resource,
        evidence=evidence,
        consequence=consequence,
        remedy=remedy,
    )


def warning(id_: str, resource: str, evidence: str, consequence: str, remedy: str) -> Finding:
    """A finding that a person should know."""
    return Finding(
        id=id_,
        severity=Severity.WARNING,
        resource=resource,
        evidence=evidence,
        consequence=consequence,
        remedy=remedy,
    )
