"""What a cluster holds, by plain HTTP calls: it shares no code with the product, so that it can contradict it."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlsplit

SELF = "@self"
DOTS = (".", "..")
# Paths of policies; a topic that has none of a kind answers 200 with nothing, 204 or 404.
TOPIC_POLICIES = (
    "retention",
    "maxProducers",
    "maxConsumers",
    "compactionThreshold",
    "deduplicationEnabled",
    "schemaCompatibilityStrategy",
)
SYSTEM_CURSORS = ("__compaction", "pulsar.dedup")
SYSTEM_TOPICS = ("__change_events", "__transaction_buffer_snapshot")
LOCAL = ("antiAffinity", "persistence/bookieAffinity")
# Written by the broker itself, or equivalent to what it is without.
IGNORED = ("bundles",)


class Refused(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text[:200]}")
        self.status = status


class Plain:
    """A connection that sends paths exactly as they are written."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def call(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", raw: bool = False
    ) -> Any:
        """The JSON answered, None for none; `Refused` unless it is 2xx. `raw` sends no body."""
        content = None if raw or method in ("GET", "DELETE") else json.dumps(body)
        with closing(http.client.HTTPConnection(self._address, timeout=60)) as connection:
            connection.request(method, f"/admin/v2{path}", content, {"Content-Type": kind})
            with connection.getresponse() as answer:
                text = answer.read().decode()
        if answer.status >= 300:
            raise Refused(answer.status, f"{method} {path}: {text}")
        return json.loads(text) if text.strip() else None

    def get(self, path: str) -> Any:
        """The document, None where there is none."""
        try:
            return self.call("GET", path)
        except Refused as refused:
            if refused.status != 404:
                raise
            return None


def once(name: str) -> str:
    """A name in a path."""
    return quote(name, safe="")


def twice(name: str) -> str:
    """A name in a path whose name the broker decodes twice: of a subscription, and of a topic for its schemas."""
    return once(once(name))


def topic_path(topic: str) -> str:
    """`persistent://a/b/c` as it stands in a path."""
    domain, _, rest = topic.partition("://")
    tenant, namespace, local = rest.split("/", 2)
    return f"/{domain}/{once(tenant)}/{once(namespace)}/{once(local)}"


def export(url: str, cluster: str, tenants: list[str]) -> dict[str, Any]:
    """Resource → document, with the cluster's own name replaced, so that two clusters can be compared as they are."""
    http_ = Plain(url)
    documents: dict[str, Any] = {}
    for tenant in tenants:
        document = http_.get(f"/tenants/{once(tenant)}")
        if document is None:
            continue
        documents[f"tenant {tenant}"] = {key: sorted(document[key] or ()) for key in ("adminRoles", "allowedClusters")}
        for namespace in http_.get(f"/namespaces/{once(tenant)}"):
            documents |= _namespace(http_, namespace)
    return {name: neutral(document, cluster) for name, document in documents.items()}


def listed_topics(http_: Plain, namespace: str) -> dict[str, int | None]:
    """Every topic of every list → its partition count; None for a partition that no partitioned topic has."""
    path = "/".join(map(once, namespace.split("/")))
    partitioned = [
        topic for domain in ("persistent", "non-persistent") for topic in http_.get(f"/{domain}/{path}/partitioned")
    ]
    topics: dict[str, int | None] = {}
    for topic in partitioned:
        if not _is_system(topic):
            topics[topic] = http_.call("GET", f"{topic_path(topic)}/partitions")["partitions"]
    parts = {f"{topic}-partition-{number}" for topic, count in topics.items() for number in range(count or 0)}
    for topic in http_.get(f"/namespaces/{path}/topics?mode=PERSISTENT"):
        if not _is_system(topic) and topic not in parts:
            topics[topic] = 0
    return topics


def _namespace(http_: Plain, namespace: str) -> dict[str, Any]:
    path = "/".join(map(once, namespace.split("/")))
    policies = http_.get(f"/namespaces/{path}")
    documents: dict[str, Any] = {f"namespace {namespace}": policies}
    try:
        policies |= {name: http_.get(f"/namespaces/{path}/{name}") for name in LOCAL}
        topics = listed_topics(http_, namespace)
    except Refused as refused:
        documents[f"namespace {namespace}"] = {"refused": refused.status}
        return documents
    documents[f"namespace {namespace}"] = {key: value for key, value in policies.items() if key not in IGNORED}
    for topic, count in topics.items():
        documents |= _topic(http_, path, topic, count or 0)
    return documents


def _topic(http_: Plain, namespace: str, topic: str, count: int) -> dict[str, Any]:
    path, local = topic_path(topic), topic.split("/", 4)[4]
    if local in DOTS:
        return {f"topic {topic}": {}}
    if count:
        properties = http_.call("GET", f"{path}/partitions").get("properties") or {}
    else:
        properties = http_.get(f"{path}/properties") or {}
    schemas = http_.get(f"/schemas/{namespace}/{twice(local)}/schemas") or {}
    versions = sorted(schemas.get("getSchemaResponses") or (), key=lambda version: version["version"])
    documents = {
        f"topic {topic}": {"partitions": count, "properties": properties},
        f"schemas {topic}": [{key: version.get(key) for key in ("type", "data", "properties")} for version in versions],
    }
    if topic.startswith("persistent://"):
        policies = {
            f"{scope} {name}": value
            for name in TOPIC_POLICIES
            for scope in ("false", "true")
            if (value := http_.get(f"{path}/{name}?isGlobal={scope}")) is not None
        }
        documents[f"policies {topic}"] = policies
        for name in sorted({*(http_.get(f"{path}/subscriptions") or ())} - {*SYSTEM_CURSORS}):
            documents[f"subscription {topic} {name}"] = _flag(http_, path, name)
    return documents


def _flag(http_: Plain, path: str, name: str) -> Any:
    if name in DOTS:
        return {}
    states = http_.get(f"{path}/subscription/{twice(name)}/replicatedSubscriptionStatus") or {}
    return {"replicated": sorted(set(states.values()))}


def _is_system(topic: str) -> bool:
    return topic.split("/", 4)[4] in SYSTEM_TOPICS


def neutral(value: Any, cluster: str) -> Any:
    """A document with the cluster's own name replaced, and lists of names sorted."""
    if isinstance(value, dict):
        return {SELF if key == cluster else key: neutral(entry, cluster) for key, entry in value.items()}
    if isinstance(value, list):
        entries = [neutral(entry, cluster) for entry in value]
        return sorted(entries, key=json.dumps) if all(isinstance(entry, str) for entry in entries) else entries
    return SELF if value == cluster else value
