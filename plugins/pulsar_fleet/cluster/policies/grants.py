"""Rights of roles: join those of two clusters action by action, and name what a change revokes (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.json import Json, JsonObject


def joined_grants(first: JsonObject, second: JsonObject) -> JsonObject:
    """The rights of both sides: of each role on the namespace and on each topic, and the roles of each subscription."""
    return {name: _joined(first.get(name), second.get(name)) for name in sorted({*first, *second})}


def _joined(first: Json, second: Json) -> Json:
    if isinstance(first, dict) or isinstance(second, dict):
        return joined_grants(first or {}, second or {})
    return sorted({*(first or ()), *(second or ())})


def revoked_rights(before: Json, after: Json) -> tuple[str, ...]:
    """What a change of `auth_policies` or of a tenant takes away: `produce of app`, `s of reader`, `adminRoles of ops`.

    :param before: comparable rights, or a tenant; None is none.
    """
    return tuple(_revoked(before or {}, after or {}))


def _revoked(before: JsonObject, after: JsonObject) -> Iterator[str]:
    old, new = (side.get("namespace_auth", {}) for side in (before, after))
    yield from _actions(old, new)
    topics, kept = (side.get("destination_auth", {}) for side in (before, after))
    for topic in sorted(topics):
        yield from (f"{text} on {topic}" for text in _actions(topics[topic], kept.get(topic, {})))
    subscriptions, roles = (side.get("subscription_auth_roles", {}) for side in (before, after))
    yield from (f"subscription {name} of {role}" for name, role in _lost(subscriptions, roles))
    admins, remaining = (side.get("adminRoles") or () for side in (before, after))
    yield from (f"the tenant of {role}" for role in sorted(set(admins) - set(remaining)))


def _actions(before: JsonObject, after: JsonObject) -> Iterator[str]:
    yield from (f"{action} of {role}" for role, action in _lost(before, after))


def _lost(before: JsonObject, after: JsonObject) -> Iterator[tuple[str, str]]:
    for name in sorted(before):
        yield from ((name, entry) for entry in sorted(set(before[name] or ()) - set(after.get(name) or ())))
