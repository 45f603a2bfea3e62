"""The effective value of a policy: equal documents behave differently under different broker defaults (pure).

A broker uses the first layer that sets the policy: the topic's local document, its global document, the namespace, the
broker's configuration (4.2.4's `PolicyHierarchyValue`). A comparison of documents does not show different defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS, Form, TopicPolicy
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind, Policy

_RATES = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")


class Layer(StrEnum):
    """Where a policy is set, in the order in which a broker asks; the first one that sets it counts."""

    LOCAL = "the topic"
    GLOBAL = "the topic's global policies"
    NAMESPACE = "the namespace"
    BROKERS = "the brokers"


def layer_values(
    policy: TopicPolicy,
    *,
    local: Mapping[str, Json],
    shared: Mapping[str, Json],
    namespace: Mapping[str, Json],
    configuration: Mapping[str, Json],
) -> dict[Layer, Json]:
    """The layers that set the policy for a topic, the effective one first; parameters as of `effective_value`."""
    values = {
        Layer.LOCAL: local.get(policy.field),
        Layer.GLOBAL: shared.get(policy.field),
        Layer.NAMESPACE: namespace.get(policy.namespace_field),
        Layer.BROKERS: _default_of_topic(policy, configuration),
    }
    return {layer: value for layer, value in values.items() if is_set(value)}


def effective_value(
    policy: TopicPolicy,
    *,
    local: Mapping[str, Json],
    shared: Mapping[str, Json],
    namespace: Mapping[str, Json],
    configuration: Mapping[str, Json],
) -> Json:
    """The effective value for a topic, None if no layer sets one.

    The documents are comparable ones, `shared` is the global one.
    """
    layers = layer_values(policy, local=local, shared=shared, namespace=namespace, configuration=configuration)
    set_values = list(layers.values())
    first = set_values[0] if set_values else None
    if policy.form not in (Form.QUOTAS, Form.DELAYED):
        return first
    # A broker looks up each part of these policies separately.
    documents = (parts for parts in reversed(set_values) if isinstance(parts, dict))
    return {part: value for parts in documents for part, value in parts.items()} or first


def clusters_in_effect(
    *, local: Mapping[str, Json], shared: Mapping[str, Json], namespace: Mapping[str, Json], own: str
) -> list[str]:
    """The list of clusters in effect for a topic of the cluster `own`: its own, its global one, or its namespace's."""
    lists = (clusters_of_topic(local=local, shared=shared), namespace.get("replication_clusters"), [own])
    return sorted(next(clusters for clusters in lists if clusters))


def clusters_of_topic(*, local: Mapping[str, Json], shared: Mapping[str, Json]) -> list[str] | None:
    """The list that a topic has itself, its own before its global one; None where that of its namespace counts."""
    clusters = local.get(TOPIC_CLUSTERS) or shared.get(TOPIC_CLUSTERS)
    return sorted(clusters) if clusters else None


def effective_of_namespace(policy: Policy, value: Json, configuration: Mapping[str, Json]) -> Json:
    """The effective value for topics without a policy of their own, in a namespace that sets `value`."""
    default = broker_default(policy, configuration)
    if policy.kind is Kind.QUOTAS:
        return {**(default or {}), **(value or {})} or None
    return value if is_set(value) else default


def broker_default(policy: Policy, configuration: Mapping[str, Json]) -> Json:
    """The value in effect while a namespace does not set the policy; None if no broker setting exists."""
    if isinstance(policy.broker_default, str):
        return parsed_setting(configuration.get(policy.broker_default))
    parts = {part: parsed_setting(configuration.get(key)) for part, key in policy.broker_default}
    parts = {part: value for part, value in parts.items() if value is not None}
    if policy.kind is Kind.QUOTAS and parts:
        gigabytes = parts.pop("limitSizeInGB", 0)
        if gigabytes > 0:  # it overrides the limit in bytes
            parts["limitSize"] = int(gigabytes * (1 << 30))
        return {section: parts for section in policy.sections}
    return parts or None


def _default_of_topic(policy: TopicPolicy, configuration: Mapping[str, Json]) -> Json:
    if policy.namespace_field:
        return broker_default(BY_FIELD[policy.namespace_field], configuration)
    return parsed_setting(configuration.get(policy.broker_default))


def is_set(value: Json) -> bool:
    """Whether a layer sets a value; for a rate without limits or a negative number a broker uses the next layer."""
    if isinstance(value, dict) and _RATES[0] in value:
        return any(value.get(key, 0) > 0 for key in _RATES)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value >= 0
    return value is not None


def parsed_setting(text: Json) -> Json:
    """A broker setting as the value of a document; lists are sorted, since brokers return them in any order."""
    if not isinstance(text, str) or not text:
        return text or None
    if text.startswith("[") and text.endswith("]"):
        return sorted(part.strip() for part in text[1:-1].split(",") if part.strip())
    try:
        return json.loads(text)
    except ValueError:
        return text
