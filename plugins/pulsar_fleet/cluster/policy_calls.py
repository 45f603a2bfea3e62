"""The calls that take a namespace policy from one value to another (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from pulsar_fleet.cluster.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies import LOCAL_FIELDS, Kind, Policy, Unset
from pulsar_fleet.cluster.policy_documents import body_for_creation

OFFLOAD_DRIVER = "managedLedgerOffloadDriver"
# Offload policies without a driver are refused as a whole; these settings have setters of their own.
_OFFLOAD_SETTERS = {
    "managedLedgerOffloadThresholdInBytes": "offloadThreshold",
    "managedLedgerOffloadThresholdInSeconds": "offloadThresholdInSeconds",
    "managedLedgerOffloadDeletionLagInMillis": "offloadDeletionLagMs",
}


def creation_calls(namespace: NamespaceName, document: JsonObject) -> tuple[Call, ...]:
    """Create a namespace: one call with the whole document, then one per setting that lies outside of it."""
    created = with_body("PUT", f"/namespaces/{namespace.path}", body_for_creation(document))
    local = [
        with_body(policy.method, f"/namespaces/{namespace.path}/{policy.path}", document[policy.field])
        for policy in LOCAL_FIELDS
        if document.get(policy.field)
    ]
    return (created, *local)


def policy_calls(policy: Policy, namespace: NamespaceName, before: Json, after: Json) -> tuple[Call, ...]:
    """From `before` to `after` (comparable values, None is unset), by the setters of this policy."""
    base = f"/namespaces/{namespace.path}"
    if policy.kind is Kind.QUOTAS:
        return tuple(quota_calls(f"{base}/{policy.path}", before or {}, after or {}))
    if policy.kind is Kind.GRANTS:
        return tuple(_grant_calls(base, before or {}, after or {}))
    if policy.kind is Kind.PROPERTIES:
        changed = {key: value for key, value in (after or {}).items() if (before or {}).get(key) != value}
        return (with_body("PUT", f"{base}/{policy.path}", changed),)
    if policy.kind is Kind.OFFLOAD and after is not None and not after.get(OFFLOAD_DRIVER):
        return tuple(_offload_calls(policy, base, before or {}, after))
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


def _grant_calls(base: str, before: JsonObject, after: JsonObject) -> Iterator[Call]:
    """Grants that are new or different; rights that only `before` has are not revoked."""
    old = before.get("namespace_auth", {})
    for role, actions in sorted(after.get("namespace_auth", {}).items()):
        if old.get(role) != actions:
            yield with_body("POST", f"{base}/permissions/{quote(role, safe='')}", actions)
    old = before.get("subscription_auth_roles", {})
    for subscription, roles in sorted(after.get("subscription_auth_roles", {}).items()):
        if old.get(subscription) != roles:
            yield with_body("POST", f"{base}/permissions/subscription/{quote(subscription, safe='')}", roles)
    old = before.get("destination_auth", {})
    for topic, grants in sorted(after.get("destination_auth", {}).items()):
        for role, actions in sorted(grants.items()):
            if old.get(topic, {}).get(role) != actions:
                path = TopicName.parse(topic).path
                yield with_body("POST", f"/{path}/permissions/{quote(role, safe='')}", actions)
