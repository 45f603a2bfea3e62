"""The calls that change a namespace policy from one value to another (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import OFFLOAD_DRIVER, body_for_creation
from pulsar_fleet.cluster.policies.namespace_catalogue import LOCAL_FIELDS, Kind, Policy, Unset

# The broker refuses a document of offload policies without a driver; these settings have setters of their own.
_OFFLOAD_SETTERS = {
    "managedLedgerOffloadThresholdInBytes": "offloadThreshold",
    "managedLedgerOffloadThresholdInSeconds": "offloadThresholdInSeconds",
    "managedLedgerOffloadDeletionLagInMillis": "offloadDeletionLagMs",
}


def creation_calls(namespace: NamespaceName, document: JsonObject) -> tuple[Call, ...]:
    """Create a namespace: one call with the whole document, then one for each local setting."""
    created = with_body("PUT", f"/namespaces/{namespace.path}", body_for_creation(document))
    local = [
        with_body(policy.method, f"/namespaces/{namespace.path}/{policy.path}", document[policy.field])
        for policy in LOCAL_FIELDS
        if document.get(policy.field)
    ]
    return (created, *local)


def policy_calls(policy: Policy, namespace: NamespaceName, before: Json, after: Json) -> tuple[Call, ...]:
    """The calls from `before` to `after` (comparable values, None is unset), by the setters of this policy."""
    base = f"/namespaces/{namespace.path}"
    if policy.kind is Kind.QUOTAS:
        return tuple(quota_calls(f"{base}/{policy.path}", before or {}, after or {}))
    if policy.kind is Kind.GRANTS:
        return tuple(_grant_calls(base, before or {}, after or {}))
    if policy.kind is Kind.PROPERTIES:
        return tuple(_property_calls(policy, base, before or {}, after or {}))
    if policy.kind is Kind.OFFLOAD and after is not None and not after.get(OFFLOAD_DRIVER):
        return tuple(_offload_calls(policy, base, before or {}, after))
    if policy.in_query:
        value = str(policy.default if after is None else after).lower()
        return (with_body(policy.method, f"{base}/{policy.path}", False, **{policy.in_query: value}),)
    return (_unset(policy, base) if after is None else _set(policy, base, after),)


def quota_calls(path: str, before: JsonObject, after: JsonObject) -> Iterator[Call]:
    """One call per quota type that differs, at a namespace's or a topic's `backlogQuota`."""
    for kind in sorted({*before, *after}):
        if before.get(kind) == after.get(kind):
            continue
        if kind in after:
            yield with_body("POST", path, after[kind], backlogQuotaType=kind)
        else:
            yield bare("DELETE", path, backlogQuotaType=kind)


def _set(policy: Policy, base: str, value: Json) -> Call:
    path = f"{base}/{policy.path}"
    if policy.in_path:
        return bare(policy.method, f"{path}/{quote(str(value), safe='')}")
    if policy.kind is Kind.FLAG:
        return bare(policy.method, path)
    return with_body(policy.method, path, value)


def _unset(policy: Policy, base: str) -> Call:
    path = f"{base}/{policy.unset_path or policy.path}"
    if policy.unset is Unset.EMPTY_POST:
        return bare("POST", path)
    if policy.unset is Unset.NULL:
        return with_body(policy.method, path, None)
    if policy.unset is Unset.DEFAULT:
        return with_body(policy.method, path, policy.default)
    return bare("DELETE", path)


def _offload_calls(policy: Policy, base: str, before: JsonObject, after: JsonObject) -> Iterator[Call]:
    if before and (before.get(OFFLOAD_DRIVER) or set(before) - set(after)):
        yield _unset(policy, base)
        before = {}
    for key, path in _OFFLOAD_SETTERS.items():
        if key in after and before.get(key) != after[key]:
            yield with_body("PUT", f"{base}/{path}", after[key])


def _property_calls(policy: Policy, base: str, before: JsonObject, after: JsonObject) -> Iterator[Call]:
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    if changed:
        yield with_body(policy.method, f"{base}/{policy.path}", changed)
    for key in sorted(set(before) - set(after)):
        yield bare("DELETE", f"{base}/property/{quote(key, safe='')}")


def _grant_calls(base: str, before: JsonObject, after: JsonObject) -> Iterator[Call]:
    """Calls that grant, replace and revoke rights; a planner that revokes nothing keeps `before` in `after`."""
    for role, actions in _changed("namespace_auth", before, after):
        yield _grant(f"{base}/permissions/{quote(role, safe='')}", actions)
    for subscription, roles in _changed("subscription_auth_roles", before, after):
        yield from _subscription_grants(base, subscription, before, roles)
    for topic, grants in _changed("destination_auth", before, after):
        granted = before.get("destination_auth", {}).get(topic, {})
        for role in sorted({*granted, *(grants or {})}):
            actions = (grants or {}).get(role)
            if granted.get(role) != actions:
                yield _grant(f"/{TopicName.parse(topic).path}/permissions/{quote(role, safe='')}", actions)


def _subscription_grants(base: str, subscription: str, before: JsonObject, roles: Json) -> Iterator[Call]:
    name = quote(subscription, safe="")
    if roles:
        yield with_body("POST", f"{base}/permissions/subscription/{name}", roles)
        return
    for role in before["subscription_auth_roles"][subscription]:
        yield bare("DELETE", f"{base}/permissions/{name}/{quote(role, safe='')}")


def _grant(path: str, actions: Json) -> Call:
    return with_body("POST", path, actions) if actions else bare("DELETE", path)


def _changed(section: str, before: JsonObject, after: JsonObject) -> Iterator[tuple[str, Json]]:
    """Entries of a section that differ, with their new value; None: removed."""
    old, new = before.get(section, {}), after.get(section, {})
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield name, new.get(name)
