"""Where equal policies have different effects, because the brokers' settings differ (pure)."""

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
class EffectiveDifference:
    """A policy that is identical on both clusters and has different effects there.

    :param namespaces: the affected namespaces, in order.
    :param source: each differing broker setting, with every value that the source's brokers report.
    :param target: the same for the target's brokers.
    :param switches: the settings switch the policy off, or apply to topics: no policy of a namespace replaces them.
    """

    field: str
    namespaces: tuple[str, ...]
    source: Mapping[str, tuple[Json, ...]]
    target: Mapping[str, tuple[Json, ...]]
    switches: bool = False


def effective_differences(source: Snapshot, target: Snapshot) -> tuple[EffectiveDifference, ...]:
    """Policies of common namespaces, identical or unset on both clusters, for which the brokers' settings differ.

    A setting that one side's brokers lack or do not report (reading it needs a superuser) is not compared.
    """
    pairs = _pairs(source, target)
    candidates: list[tuple[str, Iterable[str], Iterable[str], bool]] = []
    for policy in CATALOGUE:
        values = {name: [_policy_value(policy, document) for document in pair] for name, pair in pairs.items()}
        unset = [name for name, both in values.items() if any(_unset_parts(policy, both))]
        equal = [name for name, (ours, theirs) in values.items() if ours is not None and ours == theirs]
        candidates += [(policy.field, _keys(policy), unset, False), (policy.field, policy.needs, equal, True)]
    candidates += [(policy.field, _keys(policy), pairs, True) for policy in TOPIC_CATALOGUE]
    with_topic_policies = {str(TopicName.parse(state.topic).namespace) for state in source.topic_policies}
    candidates.append(("topic policies", TOPIC_POLICY_SWITCHES, with_topic_policies & set(pairs), True))
    differences = (_compared(*candidate, source, target) for candidate in candidates)
    return tuple(difference for difference in differences if difference is not None)


def _compared(
    field: str, keys: Iterable[str], namespaces: Iterable[str], switches: bool, source: Snapshot, target: Snapshot
) -> EffectiveDifference | None:
    """The settings of `keys` that differ, for the namespaces that they affect."""
    where = tuple(sorted(namespaces))
    ours, theirs = ({key: _answers(snapshot.brokers, key) for key in keys} for snapshot in (source, target))
    different = [key for key in ours if ours[key] and theirs[key] and ours[key] != theirs[key]]
    if not where or not different:
        return None
    return EffectiveDifference(
        field=field,
        namespaces=where,
        source={key: ours[key] for key in different},
        target={key: theirs[key] for key in different},
        switches=switches,
    )


def _pairs(source: Snapshot, target: Snapshot) -> dict[str, tuple[JsonObject, JsonObject]]:
    """The comparable documents of the common namespaces; a flag with the value false counts as set."""
    ours, theirs = (
        {
            namespace.name: {
                **{flag: False for flag in _FLAGS if namespace.policies.get(flag) is False},
                **comparable(namespace.policies, snapshot.cluster),
            }
            for namespace in snapshot.namespaces
        }
        for snapshot in (source, target)
    )
    return {name: (ours[name], theirs[name]) for name in ours if name in theirs}


def _policy_value(policy: Policy, document: JsonObject) -> Json:
    value = document.get(policy.field)
    return value if is_set(value) else None


def _unset_parts(policy: Policy, values: list[Json]) -> Iterator[bool]:
    """For the whole policy, or for each part that is set separately: whether both sides leave it unset."""
    if policy.kind is Kind.QUOTAS:
        yield from (not any(section in (value or ()) for value in values) for section in policy.sections)
    else:
        yield all(value is None for value in values)


def _keys(policy: Policy | TopicPolicy) -> tuple[str, ...]:
    if isinstance(policy.broker_default, str):
        return (policy.broker_default,) if policy.broker_default else ()
    return tuple(key for _, key in policy.broker_default)


def _answers(brokers: Iterable[BrokerState], key: str) -> tuple[Json, ...]:
    """The distinct values that the brokers report, in order; empty when one of them lacks the setting."""
    texts = [broker.configuration.get(key) for broker in brokers]
    values = [] if None in texts else [parsed_setting(text) for text in texts]
    return tuple(sorted((value for at, value in enumerate(values) if value not in values[:at]), key=repr))
