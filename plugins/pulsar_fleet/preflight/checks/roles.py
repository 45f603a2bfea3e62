"""Who may do what: roles, and whether both clusters ask for them at all (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.preflight.context import Pair, blocker, call_text, setting, settings, warning
from pulsar_fleet.preflight.findings import Finding


def clusters_ask_alike(pair: Pair) -> Iterator[Finding]:
    """Clients that move meet the target's rules."""
    for key in ("authenticationEnabled", "authorizationEnabled"):
        ours, theirs = (set(settings(snapshot, key).values()) for snapshot in (pair.source, pair.target))
        if not ours or not theirs or ours == theirs:
            continue
        stricter = "true" in theirs
        yield warning(
            "security-differs",
            f"cluster {pair.target.cluster}",
            f"{key}: {pair.values(' and '.join(sorted(ours)), ' and '.join(sorted(theirs)))}",
            "Clients that need no credentials or rights on the source are refused on the target."
            if stricter
            else "Rights that are copied protect nothing there: everybody may read and write.",
            f"give every client credentials and rights before it moves, or set {key} alike in broker.conf.",
            values=(sorted(ours), sorted(theirs)),
        )


def superusers_are_alike(pair: Pair) -> Iterator[Finding]:
    """A superuser of one side has no rights on the other, where nothing was granted to it."""
    ours, theirs = (_roles(setting(snapshot, "superUserRoles")) for snapshot in (pair.source, pair.target))
    checked = setting(pair.target, "authorizationEnabled") == "true"
    if ours is None or theirs is None or not checked or ours <= theirs:
        return
    yield warning(
        "superuser-only-on-source",
        f"cluster {pair.target.cluster}",
        f"superUserRoles: {pair.values(', '.join(sorted(ours)), ', '.join(sorted(theirs)))}",
        f"{', '.join(sorted(ours - theirs))} may do everything on {pair.source.cluster} and nothing there.",
        f"add them to superUserRoles of every broker of {pair.target.cluster}, or grant what they need.",
        values=(sorted(ours), sorted(theirs)),
    )


def tenant_admins_are_alike(pair: Pair) -> Iterator[Finding]:
    """The copy adds roles and takes none away, so a role of the target alone keeps its rights over all of it."""
    held = {one.name: set(one.admin_roles) for one in pair.target.tenants}
    for tenant in pair.wanted.tenants:
        extra = held.get(tenant.name, set()) - set(tenant.admin_roles)
        if extra:
            kept = {"adminRoles": list(tenant.admin_roles), "allowedClusters": list(tenant.allowed_clusters)}
            yield warning(
                "role-only-on-target",
                f"tenant {tenant.name}",
                f"{', '.join(sorted(extra))} administers it on {pair.target.cluster} only",
                "It will administer what is copied too: read, change and delete it.",
                f"take it away on {pair.target.cluster}, if it is not meant.",
                call=call_text(pair.target.cluster, with_body("POST", f"/tenants/{quote(tenant.name, safe='')}", kept)),
                values=(list(tenant.admin_roles), sorted(held[tenant.name])),
            )


def grants_are_alike(pair: Pair) -> Iterator[Finding]:
    """A role with rights in a namespace on the target alone will have them over the copied topics too."""
    for name, wanted, held in pair.shared():
        ours, theirs = _grants(wanted), _grants(held)
        for role in sorted(set(theirs) - set(ours)):
            path = f"/namespaces/{NamespaceName.parse(name).path}/permissions/{quote(role, safe='')}"
            yield warning(
                "role-only-on-target",
                name,
                f"{role} may {', '.join(sorted(theirs[role]))} on {pair.target.cluster} only",
                "It will have these rights over what is copied too.",
                f"revoke them on {pair.target.cluster}, if they are not meant.",
                call=call_text(pair.target.cluster, bare("DELETE", path)),
                values=(None, sorted(theirs[role])),
            )


def roles_may_log_in(pair: Pair) -> Iterator[Finding]:
    """A way of authentication that the target does not offer shuts out every client that uses it."""
    ours, theirs = (_roles(setting(snapshot, "authenticationProviders")) for snapshot in (pair.source, pair.target))
    on = all(setting(snapshot, "authenticationEnabled") == "true" for snapshot in (pair.source, pair.target))
    if on and ours and theirs is not None and ours - theirs:
        yield blocker(
            "authentication-provider-missing",
            f"cluster {pair.target.cluster}",
            f"authenticationProviders: {pair.values(', '.join(sorted(ours)), ', '.join(sorted(theirs)))}",
            "Clients that log in this way are refused on the target.",
            f"add the provider, with its keys, to every broker of {pair.target.cluster} and restart them.",
            values=(sorted(ours), sorted(theirs)),
        )


def _roles(text: str | None) -> set[str] | None:
    """`[admin, broker]`, as the brokers show their lists."""
    return None if text is None else {one.strip() for one in text.strip("[]").split(",") if one.strip()}


def _grants(policies: JsonObject) -> dict[str, set[str]]:
    found = (policies.get("auth_policies") or {}).get("namespace_auth") or {}
    return {role: set(actions) for role, actions in found.items() if actions}
