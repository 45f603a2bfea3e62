"""The checks of every procedure on two clusters, with the severity that they have for a migration (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.findings import Finding, Severity

RAISED_TO_BLOCKERS: Mapping[str, str] = {
    "partitions-grow": "redirected producers would lose the order of keys, and some partitions would never move",
    "subscription-not-addressable": "its cursor cannot be transferred, and the cut-over would fail half-way",
    "security-differs": "clients are refused on green, or green accepts every client",
}
"""Warnings of these checks that are blockers for a migration, and why."""

REPORTED_ELSEWHERE = frozenset({"not-visible", "resource-not-readable", "dynamic-settings-differ"})
"""The gates about what could not be read report the first two; a run overrides dynamic settings of blue itself."""


def clusters_are_compatible(view: View) -> Iterator[Finding]:
    """Versions, partition counts, schemas, limits, security, policies: the same rules as for onboarding."""
    blue, green = view.blue.snapshot, view.green.snapshot
    for finding in check_compatibility(blue, green, view.pair().probes):
        if finding.id in RAISED_TO_BLOCKERS:
            yield replace(finding, severity=Severity.BLOCKER)
        elif finding.id not in REPORTED_ELSEWHERE:
            yield finding
