"""What exists and could not be read: it is left out, and named (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.partial_reads import NO_SERVICE_URL, remedy_for
from pulsar_fleet.preflight.context import Pair, blocker, warning
from pulsar_fleet.preflight.findings import Finding


def unread_resources_are_reported(pair: Pair) -> Iterator[Finding]:
    """One finding for each; it stops the run where nothing of a tenant can be copied, or a connection lacks a setting.

    Everything else is left out, so that one resource that cannot be read keeps nobody from copying the others.
    """
    for own, _, _ in pair.sides():
        for note in own.unreadable:
            is_tenant = not {*"/ "} & {*note.resource}
            yield (blocker if is_tenant or NO_SERVICE_URL in note.detail else warning)(
                "resource-not-readable",
                f"{note.resource} of {own.cluster}",
                note.detail,
                "It is unknown: it is neither compared, nor copied, nor reported as equal; the rest is.",
                f"{remedy_for(note)}.",
            )
