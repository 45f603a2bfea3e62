"""Topic policies: translate and normalize their documents, and the calls that change them (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import delayed_delivery, offload, quotas, translate_clusters, without_nulls
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS, Form, Scope, TopicPolicy
from pulsar_fleet.cluster.policies.setters import quota_calls
from pulsar_fleet.cluster.policies.topic_catalogue import TOPIC_CATALOGUE

__all__ = [
    "TOPIC_BY_FIELD",
    "TOPIC_CATALOGUE",
    "Form",
    "Scope",
    "TopicPolicy",
    "topic_comparable",
    "topic_policy_calls",
    "translate_topic_policies",
    "unknown_topic_fields",
]


TOPIC_BY_FIELD: Mapping[str, TopicPolicy] = {policy.field: policy for policy in TOPIC_CATALOGUE}
_DELAYED_PARTS = ("active", "tickTime", "maxDeliveryDelayInMillis")
_IN_PARTS = frozenset(field for policy in TOPIC_CATALOGUE for field in policy.fields)


def unknown_topic_fields(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Fields that the catalogue does not have, from a newer broker; they are reported and never dropped."""
    return tuple(sorted(set(document) - set(TOPIC_BY_FIELD) - _IN_PARTS))


def translate_topic_policies(
    document: Mapping[str, Json], source: str, target: str, known_clusters: Collection[str] | None = None
) -> JsonObject:
    """A topic's policies for cluster `target`: its cluster list is translated like a namespace's."""
    result = dict(document)
    if clusters := result.get(TOPIC_CLUSTERS):
        result[TOPIC_CLUSTERS], _ = translate_clusters(clusters, source, target, known_clusters)
    return result


def topic_comparable(document: Mapping[str, Json]) -> dict[str, Json]:
    """Field → comparable value of the policies that are set; unknown fields are kept."""
    fields = {policy.field: _normal(policy, document) for policy in TOPIC_CATALOGUE}
    fields |= {field: document[field] for field in unknown_topic_fields(document)}
    return {field: value for field, value in fields.items() if value not in (None, [], {})}


def topic_policy_calls(
    policy: TopicPolicy, topic: TopicName, scope: Scope, before: Json, after: Json
) -> tuple[Call, ...]:
    """The calls from `before` to `after` (comparable values, None is unset); `false` if it cannot be unset."""
    path = f"/{topic.path}/{policy.path}"
    scoped = {"isGlobal": "true"} if scope is Scope.GLOBAL else {}
    if policy.form is Form.QUOTAS:
        calls = quota_calls(path, before or {}, after or {})
        return tuple(replace(call, params=(*call.params, *scoped.items())) for call in calls)
    if policy.form is Form.PER_SUBSCRIPTION:
        return _subscription_calls(policy, topic, scoped, before or {}, after or {})
    if after is None:
        return (bare("DELETE", path, **scoped) if policy.can_unset else with_body(policy.method, path, False),)
    if policy.form is Form.IN_QUERY:
        return (bare(policy.method, path, **{policy.path: str(after)}, **scoped),)
    if policy.form is Form.FLAG:
        return (bare(policy.method, path, **scoped),)
    return (with_body(policy.method, path, after, **scoped),)


def _subscription_calls(
    policy: TopicPolicy, topic: TopicName, scoped: Mapping[str, str], before: JsonObject, after: JsonObject
) -> tuple[Call, ...]:
    """Dispatch rates of subscriptions: one call for each that differs."""
    calls = []
    for name in sorted({*before, *after}):
        path = f"/{topic.path}/{policy.path.format(subscription=quote(name, safe=''))}"
        rate = after.get(name, {}).get("dispatchRate")
        if before.get(name) == after.get(name):
            continue
        calls.append(with_body("POST", path, rate, **scoped) if rate else bare("DELETE", path, **scoped))
    return tuple(calls)


def _normal(policy: TopicPolicy, document: Mapping[str, Json]) -> Json:
    value = without_nulls(document.get(policy.field))
    match policy.form:
        case Form.NOT_COPIED:
            return None
        case Form.DELAYED:
            return _delayed(policy, document)
        case Form.NAMES | Form.CLUSTER_LIST:
            return sorted(value or ())
        case Form.QUOTAS:
            return quotas(value)
        case Form.OFFLOAD:
            return offload(value)
        case Form.FLAG:
            return value or None
        case Form.PER_SUBSCRIPTION:
            return {name: policies for name, policies in (value or {}).items() if policies}
    return None if policy.field == "schemaCompatibilityStrategy" and value == "UNDEFINED" else value


def _delayed(policy: TopicPolicy, document: Mapping[str, Json]) -> Json:
    parts = {part: document.get(field) for field, part in zip(policy.fields, _DELAYED_PARTS, strict=True)}
    return delayed_delivery({part: value for part, value in parts.items() if value is not None})
