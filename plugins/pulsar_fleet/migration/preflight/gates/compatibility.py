"""The checks that every procedure on two clusters makes, judged by what they mean for a migration (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.findings import Finding, Severity

GRAVER: Mapping[str, str] = {
    "partitions-grow": "producers that arrive would lose the order of keys, and some partitions would never move",
    "security-differs": "clients are refused on green, or everybody is let in",
}
"""Warnings of those checks that stop a migration, and why: afterwards there is no way back."""

TOLD_BY_OTHERS = frozenset({"not-visible"})
"""`superuser-needed` tells it, once for each cluster."""


def clusters_go_together(view: View) -> Iterator[Finding]:
    """Versions, shapes of topics, schemas, limits, security, policies: the same rules as for joining the fleet."""
    blue, green = view.blue.snapshot, view.green.snapshot
    for finding in check_compatibility(blue, green, view.pair().probes):
        if finding.id in GRAVER:
            yield replace(finding, severity=Severity.BLOCKER)
        elif finding.id not in TOLD_BY_OTHERS:
            yield finding
