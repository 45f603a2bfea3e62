"""What our roles may not read or write; reported at the start, and never treated as absent (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.permissions import NAMESPACES, TENANT, Right
from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.preflight.context import Pair, blocker, warning
from pulsar_fleet.preflight.findings import Finding

_UNREADABLE = {
    Area.TENANTS: "Only the selected tenants are compared; others may exist.",
    Area.CLUSTERS: "The addresses of its peers are not compared.",
    Area.BROKERS: "Its brokers' settings and limits are not compared, so a limit may still prevent a part of the copy.",
    Area.RESOURCE_GROUPS: "It is unknown whether it has the resource groups that namespaces use.",
    Area.BOOKIE_AFFINITY: "The bookie affinity of its namespaces is neither compared nor copied.",
    Area.ISOLATION: "Its isolation policies and failure domains are not compared.",
    Area.CLIENTS: "The clients that use it are not counted.",
}
_UNWRITABLE = {
    Area.TENANTS: "A missing tenant cannot be created.",
    Area.CLUSTERS: "A missing peer cluster cannot be created.",
    Area.RESOURCE_GROUPS: "A missing resource group cannot be created.",
    Area.BOOKIE_AFFINITY: "Bookie affinity cannot be set.",
    Area.ISOLATION: "Isolation policies and failure domains cannot be set.",
}
_REMEDY = "use the token of a superuser, or accept that this part is left out."


def hidden_areas_are_reported(pair: Pair) -> Iterator[Finding]:
    """What the snapshots could not read."""
    for own, _, _ in pair.sides():
        for note in own.hidden:
            yield warning(
                "not-visible",
                f"{note.resource} of {own.cluster}",
                note.detail,
                _UNREADABLE.get(Area(note.resource), "It is not compared."),
                _REMEDY,
            )


def roles_may_copy(pair: Pair) -> Iterator[Finding]:
    """What our role may not write on the target; without permission on a tenant, nothing of it can be copied."""
    for right in pair.probes.target.rights:
        if right.may_write is not False:
            continue
        if right.resource.startswith((TENANT, NAMESPACES)):
            yield _no_permission(pair, right)
        elif right.resource in _UNWRITABLE:
            yield warning(
                "not-settable",
                f"{right.resource} of {pair.target.cluster}",
                "our role may not write it",
                _UNWRITABLE[Area(right.resource)],
                _REMEDY,
            )


def _no_permission(pair: Pair, right: Right) -> Finding:
    return blocker(
        "no-right-to-copy",
        f"{right.resource} on {pair.target.cluster}",
        "our role may not write it",
        "Nothing in it can be copied.",
        f"make our role an administrator of the tenant on {pair.target.cluster}, or use a superuser's token.",
    )
