"""Estates with names, optional fields and states that brokers accept and nobody expects, built by plain HTTP calls."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.support.every_policy import NAMESPACE_SETTINGS, NO_BODY
from tests.support.exporter import DOTS, Plain, Refused, once, topic_path, twice

OTHER = "elsewhere"
"""A cluster that only the source knows."""
# These need something on the brokers, or change which topics exist or which versions a schema may have.
_LEFT_OUT = (
    "allowedClusters",
    "replication",
    "resourcegroup/gold",
    "entryFilters",
    "subscriptionAuthMode",
    "maxTopicsPerNamespace",
    "schemaValidationEnforced",
    "PUT schemaCompatibilityStrategy",
    "PUT schemaAutoUpdateCompatibilityStrategy",
)
POLICIES = tuple(row for row in NAMESPACE_SETTINGS if row[0] not in _LEFT_OUT)
TOPIC_POLICIES: tuple[tuple[str, Any], ...] = (
    # More than any backlog quota: brokers refuse less, unless the quota of the namespace was set later.
    ("retention", {"retentionTimeInMinutes": 700, "retentionSizeInMB": 800}),
    ("maxProducers", 3),
    ("maxConsumers", 0),
    ("compactionThreshold", 0),
    ("deduplicationEnabled", False),
)
ODD = (
    "a+b",
    "a b%2Fc",
    "a%3Bb",
    "100%",
    "é.x",
    "a:b",
    "...",
    "x-partition-",
    "q?a=b&c#d",
    "'\"",
    "a\\b",
    "%2E%2E",
    "ключ",
    ".",
)
_ANY = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="/"),
    min_size=1,
    max_size=8,
)
NAMES = st.one_of(st.sampled_from(ODD), _ANY)
SUBSCRIPTIONS = st.one_of(st.sampled_from((*ODD, "..", "a/b")), _ANY)
PLAIN_NAMES = st.text("abcXYZ019=:.-_", min_size=1, max_size=8).filter(lambda name: name.strip(".") != "")
TEXTS = st.dictionaries(
    st.one_of(st.just("team"), _ANY),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=6),
    max_size=3,
)
RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
SCHEMAS = st.sampled_from(
    [(kind, json.dumps(RECORD)) for kind in ("AVRO", "JSON")]
    + [(kind, "") for kind in ("STRING", "INT32", "BOOLEAN", "DATE")]
)
STRATEGIES = ("UNDEFINED", "FULL", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE")


@dataclass(frozen=True)
class Topic:
    """`deleted`: the partitions that the broker has deleted; a topic that is not persistent is partitioned."""

    name: str
    partitions: int
    properties: dict[str, str]
    schemas: list[tuple[str, str]]
    policies: list[tuple[str, Any]]
    subscriptions: list[tuple[str, bool]]
    deleted: list[int]
    persistent: bool


@dataclass(frozen=True)
class Namespace:
    """`elsewhere`: its cluster list names another cluster only."""

    name: str
    policies: list[Any]
    properties: dict[str, str]
    roles: dict[str, list[str]]
    strategy: str
    topics: list[Topic]
    elsewhere: bool


TOPICS = st.builds(
    Topic,
    name=NAMES,
    partitions=st.integers(0, 3),
    properties=TEXTS,
    schemas=st.lists(SCHEMAS, max_size=3),
    policies=st.lists(st.sampled_from(TOPIC_POLICIES), max_size=3, unique_by=lambda row: row[0]),
    subscriptions=st.lists(st.tuples(SUBSCRIPTIONS, st.booleans()), max_size=2, unique_by=lambda row: row[0]),
    deleted=st.lists(st.integers(0, 2), max_size=3, unique=True),
    persistent=st.integers(0, 9).map(bool),
)
NAMESPACES = st.builds(
    Namespace,
    name=PLAIN_NAMES,
    policies=st.lists(st.sampled_from(POLICIES), max_size=5, unique_by=lambda row: (row[0], str(row[2]))),
    properties=TEXTS,
    roles=st.dictionaries(_ANY, st.lists(st.sampled_from(("produce", "consume")), min_size=1, unique=True), max_size=2),
    strategy=st.sampled_from(STRATEGIES),
    topics=st.lists(TOPICS, max_size=4, unique_by=lambda topic: topic.name),
    elsewhere=st.integers(0, 7).map(lambda number: number == 7),
)
ESTATES = st.lists(NAMESPACES, min_size=1, max_size=3, unique_by=lambda namespace: namespace.name)


def build(url: str, cluster: str, tenant: str, estate: list[Namespace]) -> set[str]:
    """Build what the broker accepts of an estate; returns the exporter's names of what cannot be copied over HTTP."""
    http_ = Plain(url)
    http_.call("PUT", f"/tenants/{once(tenant)}", {"adminRoles": ["a b", "é"], "allowedClusters": [cluster, OTHER]})
    uncopyable: set[str] = set()
    for namespace in estate:
        path = f"{once(tenant)}/{once(namespace.name)}"
        http_.call("PUT", f"/namespaces/{path}", {"replication_clusters": [cluster]})
        http_.call("PUT", f"/namespaces/{path}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
        for topic in namespace.topics:
            uncopyable |= _build_topic(http_, f"{tenant}/{namespace.name}", topic)
        _set_policies(http_, path, namespace)
        if namespace.elsewhere and not namespace.topics:
            # A list without the serving cluster deletes its topics.
            http_.call("POST", f"/namespaces/{path}/replication", [OTHER])
            uncopyable.add(f"namespace {tenant}/{namespace.name}")
    return uncopyable


def _set_policies(http_: Plain, path: str, namespace: Namespace) -> None:
    for setter, body, query in namespace.policies:
        method, _, name = setter.rpartition(" ")
        words = "&".join(f"{key}={value}" for key, value in query.items())
        # Refused: its value does not fit one that was set before.
        with suppress(Refused):
            address = f"/namespaces/{path}/{name}{'?' * bool(words)}{words}"
            http_.call(method or "POST", address, body, raw=body is NO_BODY)
    for role, actions in namespace.roles.items():
        with suppress(Refused):
            http_.call("POST", f"/namespaces/{path}/permissions/{once(role)}", actions)
    if namespace.properties:
        http_.call("PUT", f"/namespaces/{path}/properties", namespace.properties)
    http_.call("PUT", f"/namespaces/{path}/schemaCompatibilityStrategy", namespace.strategy)


def _build_topic(http_: Plain, namespace: str, topic: Topic) -> set[str]:
    count = topic.partitions if topic.persistent else max(1, topic.partitions)
    name = f"{'persistent' if topic.persistent else 'non-persistent'}://{namespace}/{topic.name}"
    path = topic_path(name)
    try:
        _create(http_, path, count, topic.properties)
    except Refused:
        return set()
    if topic.name in DOTS:
        return {f"topic {name}"}
    place = f"/schemas/{'/'.join(map(once, namespace.split('/')))}/{twice(topic.name)}/schema"
    for type_, text in topic.schemas:
        http_.call("POST", place, {"type": type_, "schema": text, "properties": topic.properties})
    if not topic.persistent:
        return set()
    for number, (policy, value) in enumerate(topic.policies):
        http_.call("POST", f"{path}/{policy}?isGlobal={'true' if number % 2 else 'false'}", value)
    parts = [topic_path(f"{name}-partition-{number}") for number in range(count)] or [path]
    for subscription, replicated in topic.subscriptions:
        for part in parts:
            _subscribe(http_, f"{part}/subscription/{twice_dotted(subscription)}", replicated)
    for number in topic.deleted if not topic.subscriptions else ():
        if number < count:
            http_.call("DELETE", f"{parts[number]}?force=true")
    return {f"subscription {name} {subscription}" for subscription, _ in topic.subscriptions if subscription in DOTS}


def _create(http_: Plain, path: str, count: int, properties: dict[str, str]) -> None:
    if count:
        kind = "application/vnd.partitioned-topic-metadata+json"
        body = {"partitions": count, "properties": properties}
        http_.call("PUT", f"{path}/partitions?createLocalTopicOnly=true", body, kind=kind)
    else:
        http_.call("PUT", path, properties)


def _subscribe(http_: Plain, path: str, replicated: bool) -> None:
    http_.call("PUT", f"{path}?replicated={str(replicated).lower()}", "earliest")
    if replicated:
        http_.call("POST", f"{path}/replicatedSubscriptionStatus", True)


def twice_dotted(name: str) -> str:
    """A subscription of a plain topic or partition, for which the broker forwards no call, may be called `..`."""
    return once(once(name).replace(".", "%2E") if name in DOTS else once(name))
