"""Roles and permissions on both clusters; what our roles may not read or write is never treated as absent (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.admin.partial_reads import NAMESPACES_OF, Area
from pulsar_fleet.cluster.admin.permissions import TENANT, Right
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.planning.changes.namespaces import tenant_path
from pulsar_fleet.preflight.context import (
    NO_RESTART,
    Pair,
    blocker,
    call_text,
    in_broker_conf,
    names_in,
    setting,
    warning,
)
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


def security_matches(pair: Pair) -> Iterator[Finding]:
    """Clients that move are subject to the target's authentication and authorization."""
    for key, ours, theirs in pair.differing_settings(("authenticationEnabled", "authorizationEnabled")):
        yield warning(
            "security-differs",
            f"cluster {pair.target.cluster}",
            f"{key}: {pair.values(ours, theirs)}",
            "Clients that need no credentials or permissions on the source are refused on the target."
            if "true" in theirs
            else "Copied permissions protect nothing there: every client may read and write.",
            f"give every client credentials and permissions on {pair.target.cluster} before it moves."
            if "true" in theirs
            else f"if {pair.target.cluster} is to be protected, give its clients credentials and permissions, since "
            f"all others are refused from then on, and {in_broker_conf(f'{key}=true', 'its brokers')}",
            values=(ours, theirs),
        )


def superusers_match(pair: Pair) -> Iterator[Finding]:
    """A superuser of one cluster has no permissions on the other without a grant."""
    ours, theirs = (_roles(setting(snapshot, "superUserRoles")) for snapshot in (pair.source, pair.target))
    checked = setting(pair.target, "authorizationEnabled") == "true"
    if ours is None or theirs is None or not checked or ours <= theirs:
        return
    yield warning(
        "superuser-only-on-source",
        f"cluster {pair.target.cluster}",
        f"superUserRoles: {pair.values(', '.join(sorted(ours)), ', '.join(sorted(theirs)))}",
        f"{', '.join(sorted(ours - theirs))} may do everything on {pair.source.cluster} only.",
        f"grant them on {pair.target.cluster} the permissions that they need; only roles that administer the whole "
        "cluster "
        "belong in superUserRoles.",
        values=(sorted(ours), sorted(theirs)),
    )


def tenant_admins_match(pair: Pair) -> Iterator[Finding]:
    """The copy adds roles and removes none, so a role of the target only keeps its permissions on the whole tenant."""
    target_roles = {row.name: set(row.admin_roles) for row in pair.target.tenants}
    target_clusters = {row.name: set(row.allowed_clusters) for row in pair.target.tenants}
    for tenant in pair.translated.tenants:
        extra = target_roles.get(tenant.name, set()) - set(tenant.admin_roles)
        if extra:
            # The call replaces the document: roles and clusters that the tenant has there must stay.
            kept = {
                "adminRoles": sorted(target_roles[tenant.name] - extra),
                "allowedClusters": sorted(target_clusters[tenant.name]),
            }
            yield warning(
                "role-only-on-target",
                f"tenant {tenant.name}",
                f"{', '.join(sorted(extra))} administers it on {pair.target.cluster} only",
                "It will administer the copied resources too: read, change and delete them.",
                f"if no person or application on {pair.target.cluster} needs it, this run included, remove it there. "
                "The call replaces the tenant's roles and clusters: read them again and repeat those that it has.",
                call=call_text(
                    pair.target.cluster,
                    bare("GET", tenant_path(tenant.name)),
                    with_body("POST", tenant_path(tenant.name), kept),
                ),
                values=(list(tenant.admin_roles), sorted(target_roles[tenant.name])),
            )


def grants_match(pair: Pair) -> Iterator[Finding]:
    """A role with permissions on a namespace on the target only will have them on the copied topics too."""
    for name, source, target in pair.common_namespaces():
        ours, theirs = _grants(source), _grants(target)
        for role in sorted(set(theirs) - set(ours)):
            path = f"/namespaces/{NamespaceName.parse(name).path}/permissions/{quote(role, safe='')}"
            yield warning(
                "role-only-on-target",
                name,
                f"{role} may {', '.join(sorted(theirs[role]))} on {pair.target.cluster} only",
                "It will have these permissions on the copied topics too.",
                f"if no application on {pair.target.cluster} uses this role, revoke them there.",
                call=call_text(pair.target.cluster, bare("DELETE", path)),
                values=(None, sorted(theirs[role])),
            )


def authentication_providers_match(pair: Pair) -> Iterator[Finding]:
    """The target refuses every client that uses an authentication provider that it lacks."""
    ours, theirs = (_roles(setting(snapshot, "authenticationProviders")) for snapshot in (pair.source, pair.target))
    on = all(setting(snapshot, "authenticationEnabled") == "true" for snapshot in (pair.source, pair.target))
    if on and ours and theirs is not None and ours - theirs:
        yield blocker(
            "authentication-provider-missing",
            f"cluster {pair.target.cluster}",
            f"authenticationProviders: {pair.values(', '.join(sorted(ours)), ', '.join(sorted(theirs)))}",
            "Clients that authenticate with this provider are refused on the target.",
            f"add the provider, with its keys, to every broker of {pair.target.cluster} and restart them. {NO_RESTART}",
            values=(sorted(ours), sorted(theirs)),
        )


def _roles(text: str | None) -> set[str] | None:
    return None if text is None else set(names_in(text))


def _grants(policies: JsonObject) -> dict[str, set[str]]:
    grants = (policies.get("auth_policies") or {}).get("namespace_auth") or {}
    return {role: set(actions) for role, actions in grants.items() if actions}


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
        if right.resource.startswith((TENANT, NAMESPACES_OF)):
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
        f"add our role to the administrators of the tenant on {pair.target.cluster}, or use a superuser's token. An "
        "update replaces the tenant's roles: repeat those that it has.",
    )
