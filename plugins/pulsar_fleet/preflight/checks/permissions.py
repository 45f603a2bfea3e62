"""What our roles may not see or set: said at the start, and never taken for absent (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.permissions import NAMESPACES, TENANT, Right
from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.preflight.context import Pair, blocker, warning
from pulsar_fleet.preflight.findings import Finding

_UNSEEN = {
    Area.TENANTS: "Only the tenants that were named are compared; others may be there.",
    Area.CLUSTERS: "The addresses of its peers are not compared.",
    Area.BROKERS: "Its brokers' settings and limits are not compared, so a limit may still refuse a part of the copy.",
    Area.RESOURCE_GROUPS: "Whether it has the resource groups that namespaces use is not known.",
    Area.BOOKIE_AFFINITY: "The bookies that its namespaces prefer are not compared and not copied.",
    Area.ISOLATION: "Its isolation policies and failure domains are not compared.",
    Area.CLIENTS: "The clients that use it are not counted.",
}
_UNSET = {
    Area.TENANTS: "A tenant that is missing cannot be created.",
    Area.CLUSTERS: "A peer that it does not know cannot be made known to it.",
    Area.RESOURCE_GROUPS: "A resource group that is missing cannot be created.",
    Area.BOOKIE_AFFINITY: "Bookie affinity cannot be set.",
    Area.ISOLATION: "Isolation policies and failure domains cannot be set.",
}
_REMEDY = "use the token of a superuser, or accept that this part is left out."


def what_is_hidden_is_told(pair: Pair) -> Iterator[Finding]:
    """What the snapshots could not hold."""
    for own, _, _ in pair.sides():
        for note in own.hidden:
            yield warning(
                "not-visible",
                f"{note.resource} of {own.cluster}",
                note.detail,
                _UNSEEN.get(Area(note.resource), "It is not compared."),
                _REMEDY,
            )


def roles_may_copy(pair: Pair) -> Iterator[Finding]:
    """What our role may not set on the target; without rights over a tenant nothing of it can be copied."""
    for right in pair.probes.target.rights:
        if right.may_write is not False:
            continue
        if right.resource.startswith((TENANT, NAMESPACES)):
            yield _no_right(pair, right)
        elif right.resource in _UNSET:
            yield warning(
                "not-settable",
                f"{right.resource} of {pair.target.cluster}",
                "our role may not write it",
                _UNSET[Area(right.resource)],
                _REMEDY,
            )


def _no_right(pair: Pair, right: Right) -> Finding:
    return blocker(
        "no-right-to-copy",
        f"{right.resource} on {pair.target.cluster}",
        "our role may not write it",
        "Nothing of it can be copied.",
        f"make our role an administrator of the tenant on {pair.target.cluster}, or use a superuser's token.",
    )
