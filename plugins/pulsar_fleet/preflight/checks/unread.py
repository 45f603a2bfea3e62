"""What exists and could not be read: it is left out, and named (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.read_problems import remedy_for
from pulsar_fleet.preflight.context import Pair, blocker, warning
from pulsar_fleet.preflight.findings import Finding


def unread_resources_are_reported(pair: Pair) -> Iterator[Finding]:
    """One finding for each; an unreadable tenant stops the run, since nothing of it could be copied."""
    for own, _, _ in pair.sides():
        tenants = {note.resource for note in own.unreadable if not {*"/ "} & {*note.resource}}
        for note in own.unreadable:
            report = blocker if note.resource in tenants - {"brokers", "functions", "packages"} else warning
            yield report(
                "resource-not-readable",
                f"{note.resource} of {own.cluster}",
                note.detail,
                "It is unknown: it is neither compared, nor copied, nor reported as equal; the rest is.",
                f"{remedy_for(note)}.",
            )
