"""Permissions that roles have on blue and lack on green: their applications hang after the cutover (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName


@dataclass(frozen=True, slots=True)
class Grant:
    """A permission to grant on green: `role` for operators, and the call that grants it."""

    role: str
    call: Call


def missing_grants(namespace: NamespaceName, blue: JsonObject, green: JsonObject) -> tuple[Grant, ...]:
    """What to grant on green so that each role has the permissions of blue; no permission is ever revoked."""
    source, target = blue.get("auth_policies") or {}, green.get("auth_policies") or {}
    return (
        *_of_roles(f"/namespaces/{namespace.path}", source.get("namespace_auth"), target.get("namespace_auth")),
        *_of_topics(source.get("destination_auth") or {}, target.get("destination_auth") or {}),
        *_of_subscriptions(
            namespace, source.get("subscription_auth_roles") or {}, target.get("subscription_auth_roles") or {}
        ),
    )


def _of_roles(path: str, source: JsonObject | None, target: JsonObject | None) -> Iterator[Grant]:
    for role, actions in sorted((source or {}).items()):
        granted = set((target or {}).get(role) or ())
        if not set(actions) <= granted:
            call_path = f"{path}/permissions/{quote(role, safe='')}"
            yield Grant(role, with_body("POST", call_path, sorted(granted | set(actions))))


def _of_topics(source: JsonObject, target: JsonObject) -> Iterator[Grant]:
    for topic, roles in sorted(source.items()):
        yield from _of_roles(f"/{TopicName.parse(topic).path}", roles, target.get(topic))


def _of_subscriptions(namespace: NamespaceName, source: JsonObject, target: JsonObject) -> Iterator[Grant]:
    for subscription, roles in sorted(source.items()):
        granted = set(target.get(subscription) or ())
        if not set(roles) <= granted:
            path = f"/namespaces/{namespace.path}/permissions/subscription/{quote(subscription, safe='')}"
            yield Grant(", ".join(sorted(set(roles) - granted)), with_body("POST", path, sorted(granted | set(roles))))
