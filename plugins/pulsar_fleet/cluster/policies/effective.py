"""What counts for a topic, layer over layer, and where equal documents behave differently (pure).

A broker takes the first layer that says something: the topic's local document, its global one, the namespace, the
broker's own configuration (4.2.4's `PolicyHierarchyValue`). So two namespaces with equal documents behave differently
under brokers with different defaults, and no comparison of documents shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, Kind, Policy
from pulsar_fleet.cluster.policies.model import Form, TopicPolicy

_RATES = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")


class Layer(StrEnum):
    """Who says what counts, in the order in which a broker asks."""

    TOPIC = "topic"
    TOPIC_GLOBAL = "topic, all clusters"
    NAMESPACE = "namespace"
    BROKER = "broker default"
    NOBODY = "not set anywhere"


@dataclass(frozen=True, slots=True)
class Effective:
    """A value with the layer that says it; of a policy with parts, the first layer that says one of them."""

    value: Json
    layer: Layer


def effective_value(
    policy: TopicPolicy,
    *,
    local: Mapping[str, Json],
    shared: Mapping[str, Json],
    namespace: Mapping[str, Json],
    configuration: Mapping[str, Json],
) -> Effective:
    """What counts for a topic; the documents are comparable ones, `shared` is the global one."""
    layers = (
        (Layer.TOPIC, local.get(policy.field)),
        (Layer.TOPIC_GLOBAL, shared.get(policy.field)),
        (Layer.NAMESPACE, namespace.get(policy.namespace_field)),
        (Layer.BROKER, _default_of_topic(policy, configuration)),
    )
    said = [(layer, value) for layer, value in layers if is_set(value)]
    if not said:
        return Effective(None, Layer.NOBODY)
    layer, value = said[0]
    if policy.form in (Form.QUOTAS, Form.DELAYED):
        # A broker asks the layers for each part of these by itself.
        documents = (parts for _, parts in reversed(said) if isinstance(parts, dict))
        value = {part: one for parts in documents for part, one in parts.items()} or value
    return Effective(value, layer)


def effective_of_namespace(policy: Policy, value: Json, configuration: Mapping[str, Json]) -> Json:
    """What counts for the topics of a namespace that sets `value`, while they have no policy of their own."""
    default = broker_default(policy, configuration)
    if policy.kind is Kind.QUOTAS:
        return {**(default or {}), **(value or {})} or None
    return value if is_set(value) else default


def broker_default(policy: Policy, configuration: Mapping[str, Json]) -> Json:
    """What counts while a namespace does not set the policy; None where the broker has no setting for that."""
    if isinstance(policy.broker_default, str):
        return parsed_setting(configuration.get(policy.broker_default))
    parts = {part: parsed_setting(configuration.get(key)) for part, key in policy.broker_default}
    parts = {part: value for part, value in parts.items() if value is not None}
    if policy.kind is Kind.QUOTAS and parts:
        gigabytes = parts.pop("limitSizeInGB", 0)
        if gigabytes > 0:  # it wins over the limit in bytes
            parts["limitSize"] = int(gigabytes * (1 << 30))
        return {section: parts for section in policy.sections}
    return parts or None


def _default_of_topic(policy: TopicPolicy, configuration: Mapping[str, Json]) -> Json:
    if policy.namespace_field:
        return broker_default(BY_FIELD[policy.namespace_field], configuration)
    return parsed_setting(configuration.get(policy.broker_default))


def is_set(value: Json) -> bool:
    """Whether a broker stops at this layer; a rate without limits and a negative number let it ask the next."""
    if isinstance(value, dict) and _RATES[0] in value:
        return any(value.get(key, 0) > 0 for key in _RATES)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value >= 0
    return value is not None


def parsed_setting(text: Json) -> Json:
    """A setting as the value that a document would hold; lists in order, since brokers give them in any."""
    if not isinstance(text, str) or not text:
        return text or None
    if text.startswith("[") and text.endswith("]"):
        return sorted(part.strip() for part in text[1:-1].split(",") if part.strip())
    try:
        return json.loads(text)
    except ValueError:
        return text
