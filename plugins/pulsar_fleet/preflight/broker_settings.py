"""Where equal policy documents behave differently, because the brokers have different settings (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import is_set, parsed_setting
from pulsar_fleet.cluster.policies.lookup import CATALOGUE, Kind, Policy
from pulsar_fleet.cluster.policies.model import TopicPolicy
from pulsar_fleet.cluster.policies.topic_catalogue import TOPIC_CATALOGUE
from pulsar_fleet.snapshot.model import BrokerState, Snapshot

TOPIC_POLICY_SWITCHES = ("topicLevelPoliciesEnabled", "systemTopicEnabled")
_FLAGS = tuple(policy.field for policy in CATALOGUE if policy.kind is Kind.FLAG)


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
    return value if is_set(value) else None


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
    found = [] if None in texts else [parsed_setting(text) for text in texts]
    return tuple(sorted((value for at, value in enumerate(found) if value not in found[:at]), key=repr))
