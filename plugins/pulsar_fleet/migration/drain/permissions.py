"""Rights that roles have on blue and lack on green: their applications hang after the switch (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName


@dataclass(frozen=True, slots=True)
class Grant:
    """A right to give on green: `role` for people, and the call that gives it."""

    role: str
    call: Call


def lacking(namespace: NamespaceName, blue: JsonObject, green: JsonObject) -> tuple[Grant, ...]:
    """What has to be granted on green so that each role may there what it may on blue; nothing is ever taken away."""
    mine, other = blue.get("auth_policies") or {}, green.get("auth_policies") or {}
    return (
        *_of_roles(f"/namespaces/{namespace.path}", mine.get("namespace_auth"), other.get("namespace_auth")),
        *_of_topics(mine.get("destination_auth") or {}, other.get("destination_auth") or {}),
        *_of_subscriptions(
            namespace, mine.get("subscription_auth_roles") or {}, other.get("subscription_auth_roles") or {}
        ),
    )


def _of_roles(path: str, mine: JsonObject | None, other: JsonObject | None) -> Iterator[Grant]:
    for role, actions in sorted((mine or {}).items()):
        there = set((other or {}).get(role) or ())
        if not set(actions) <= there:
            where = f"{path}/permissions/{quote(role, safe='')}"
            yield Grant(role, with_body("POST", where, sorted(there | set(actions))))


def _of_topics(mine: JsonObject, other: JsonObject) -> Iterator[Grant]:
    for topic, roles in sorted(mine.items()):
        yield from _of_roles(f"/{TopicName.parse(topic).path}", roles, other.get(topic))


def _of_subscriptions(namespace: NamespaceName, mine: JsonObject, other: JsonObject) -> Iterator[Grant]:
    for subscription, roles in sorted(mine.items()):
        there = set(other.get(subscription) or ())
        if not set(roles) <= there:
            path = f"/namespaces/{namespace.path}/permissions/subscription/{quote(subscription, safe='')}"
            yield Grant(", ".join(sorted(set(roles) - there)), with_body("POST", path, sorted(there | set(roles))))
