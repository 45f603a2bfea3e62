"""What counts for a topic, layer over layer, and where equal documents behave differently (pure).

A broker takes the first layer that says something: the topic's local document, its global one, the namespace, the
broker's own configuration (4.2.4's `PolicyHierarchyValue`). So two namespaces with equal documents behave differently
under brokers with different defaults, and no comparison of documents shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies import BY_FIELD, CATALOGUE, Kind, Policy
from pulsar_fleet.cluster.policy_documents import comparable
from pulsar_fleet.cluster.policy_row import Form, TopicPolicy
from pulsar_fleet.cluster.states import BrokerState, Snapshot
from pulsar_fleet.cluster.topic_catalogue import TOPIC_CATALOGUE

TOPIC_POLICY_SWITCHES = ("topicLevelPoliciesEnabled", "systemTopicEnabled")
_FLAGS = tuple(policy.field for policy in CATALOGUE if policy.kind is Kind.FLAG)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BehavesDifferently:
    """A policy that the documents of both clusters say alike, and that works differently on them.

    :param namespaces: where, in order.
    :param source: each broker setting that makes the difference, with every value that the source's brokers give.
    :param target: the same of the target's brokers.
    """

    field: str
    namespaces: tuple[str, ...]
    source: Mapping[str, tuple[Json, ...]]
    target: Mapping[str, tuple[Json, ...]]


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
    said = [(layer, value) for layer, value in layers if _says_something(value)]
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
    return value if _says_something(value) else default


def broker_default(policy: Policy, configuration: Mapping[str, Json]) -> Json:
    """What counts while a namespace does not set the policy; None where the broker has no setting for that."""
    if isinstance(policy.broker_default, str):
        return _parsed(configuration.get(policy.broker_default))
    parts = {part: _parsed(configuration.get(key)) for part, key in policy.broker_default}
    parts = {part: value for part, value in parts.items() if value is not None}
    if policy.kind is Kind.QUOTAS and parts:
        gigabytes = parts.pop("limitSizeInGB", 0)
        if gigabytes > 0:  # it wins over the limit in bytes
            parts["limitSize"] = int(gigabytes * (1 << 30))
        return {section: parts for section in policy.sections}
    return parts or None


def behaving_differently(source: Snapshot, target: Snapshot) -> tuple[BehavesDifferently, ...]:
    """Policies of namespaces that both have, said alike or by neither, for which the brokers' settings differ.

    A setting that one side's brokers do not have, or do not show (that needs a superuser), is not compared.
    """
    pairs = _pairs(source, target)
    asked: list[tuple[str, Iterable[str], Iterable[str]]] = []
    for policy in CATALOGUE:
        said = {name: [_said(policy, document) for document in pair] for name, pair in pairs.items()}
        unset = [name for name, values in said.items() if any(_open_parts(policy, values))]
        equal = [name for name, (one, other) in said.items() if one is not None and one == other]
        asked += [(policy.field, _keys(policy), unset), (policy.field, policy.needs, equal)]
    asked += [(policy.field, _keys(policy), pairs) for policy in TOPIC_CATALOGUE]
    policed = {str(TopicName.parse(one.topic).namespace) for one in source.topic_policies}
    asked.append(("topic policies", TOPIC_POLICY_SWITCHES, policed & set(pairs)))
    found = (_compared(field, keys, namespaces, source, target) for field, keys, namespaces in asked)
    return tuple(one for one in found if one is not None)


def _compared(
    field: str, keys: Iterable[str], namespaces: Iterable[str], source: Snapshot, target: Snapshot
) -> BehavesDifferently | None:
    """The settings of `keys` that differ, for namespaces to which they matter."""
    where = tuple(sorted(namespaces))
    ours, theirs = ({key: _answers(one.brokers, key) for key in keys} for one in (source, target))
    different = [key for key in ours if ours[key] and theirs[key] and ours[key] != theirs[key]]
    if not where or not different:
        return None
    return BehavesDifferently(
        field=field,
        namespaces=where,
        source={key: ours[key] for key in different},
        target={key: theirs[key] for key in different},
    )


def _pairs(source: Snapshot, target: Snapshot) -> dict[str, tuple[JsonObject, JsonObject]]:
    """The comparable documents of the namespaces that both have; a flag that is off counts as set."""
    ours, theirs = (
        {one.name: {**_flags_off(one.policies), **comparable(one.policies, side.cluster)} for one in side.namespaces}
        for side in (source, target)
    )
    return {name: (ours[name], theirs[name]) for name in ours if name in theirs}


def _flags_off(document: JsonObject) -> JsonObject:
    return {field: False for field in _FLAGS if document.get(field) is False}


def _said(policy: Policy, document: JsonObject) -> Json:
    value = document.get(policy.field)
    return value if _says_something(value) else None


def _open_parts(policy: Policy, values: list[Json]) -> Iterator[bool]:
    """For the whole policy, or each part that is set by itself: whether neither side says it."""
    if policy.kind is Kind.QUOTAS:
        yield from (not any(section in (value or ()) for value in values) for section in policy.sections)
    else:
        yield all(value is None for value in values)


def _keys(policy: Policy | TopicPolicy) -> tuple[str, ...]:
    if isinstance(policy.broker_default, str):
        return (policy.broker_default,) if policy.broker_default else ()
    return tuple(key for _, key in policy.broker_default)


def _answers(brokers: Iterable[BrokerState], key: str) -> tuple[Json, ...]:
    """The values that the brokers give, each once, in order; empty when one of them has no such setting."""
    texts = [broker.configuration.get(key) for broker in brokers]
    found = [] if None in texts else [_parsed(text) for text in texts]
    return tuple(sorted((value for at, value in enumerate(found) if value not in found[:at]), key=repr))


def _default_of_topic(policy: TopicPolicy, configuration: Mapping[str, Json]) -> Json:
    if policy.namespace_field:
        return broker_default(BY_FIELD[policy.namespace_field], configuration)
    return _parsed(configuration.get(policy.broker_default))


def _says_something(value: Json) -> bool:
    """Whether a broker stops at this layer; a rate without limits and a negative number let it ask the next."""
    if isinstance(value, dict) and _RATES[0] in value:
        return any(value.get(key, 0) > 0 for key in _RATES)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value >= 0
    return value is not None


def _parsed(text: Json) -> Json:
    """A setting as the value that a document would hold; lists in order, since brokers give them in any."""
    if not isinstance(text, str) or not text:
        return text or None
    if text.startswith("[") and text.endswith("]"):
        return sorted(part.strip() for part in text[1:-1].split(",") if part.strip())
    try:
        return json.loads(text)
    except ValueError:
        return text
