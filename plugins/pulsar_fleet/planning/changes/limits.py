"""Retention and backlog quota limit each other: put their changes into an order that brokers accept (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.model import TopicPolicyField, lowered
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.refusals import (
    MEGABYTES,
    MINUTES,
    exceeds_retention,
    limits_quota,
    longer_retention,
)
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, topic_policy_calls
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard

_RETENTION = ("retention_policies", "retentionPolicies")
_QUOTA = ("backlog_quota_map", "backLogQuotaMap")
_LIMITS = (*_RETENTION, *_QUOTA)
_COMPARED_OF_NAMESPACE = ("destination_storage",)
_keeps_less = lowered(MINUTES, MEGABYTES)

Inherited = Callable[[Change], Json]
Holder = tuple[Resource, str, str]
"""What has one retention and one set of quotas: a namespace, or a topic in one scope."""


def in_accepted_order(changes: Sequence[Change], inherited: Inherited = lambda _: None) -> list[Change]:
    """The changes, with each retention before or after its backlog quota, so that brokers accept every call.

    Where neither order is accepted, the retention is first raised to the larger value in each dimension, and set to
    its final value after all other changes.

    :param changes: policies of namespaces and topics, and others, which keep their order.
    :param inherited: the retention of the namespace of a topic whose retention changes; None where there is none.
    """
    pairs = _pairs(changes)
    first: list[Change] = []
    last: list[Change] = []
    for change in changes:
        pair = pairs.get(_holder(change), ()) if _policy(change) in _LIMITS else ()
        if not pair:
            first.append(change)
        elif change is pair[0]:
            ordered, final = _ordered(*_by_policy(pair), inherited)
            first += ordered
            last += final
    return [*first, *last]


@dataclass(frozen=True, slots=True)
class RetentionSteps:
    """The changes of a retention: the `first` raises it for a while if it is not the `last`."""

    first: Change
    last: Change


def retention_steps(changes: Iterable[Change]) -> Mapping[str, RetentionSteps]:
    """Id of each change that raises a retention for a while, and of each quota after it → all changes of the retention.

    A quota that is set after a retention is refused without it, and a raised retention must not stay.
    """
    by_holder: dict[Holder, list[Change]] = {}
    for change in changes:
        if _policy(change) in _RETENTION or (_policy(change) in _QUOTA and _holder(change) in by_holder):
            by_holder.setdefault(_holder(change), []).append(change)
    steps: dict[str, RetentionSteps] = {}
    for first, *others in by_holder.values():
        last = next((change for change in reversed(others) if change.field == first.field), first)
        steps |= {change.id: RetentionSteps(first, last) for change in (first, *others) if change is not last}
    return steps


def with_both_limits(changes: Iterable[Change]) -> frozenset[str]:
    """The names of the topics of which both limits change: a call is compared with what the one before it set."""
    return frozenset(name for resource, name, _ in _pairs(list(changes)) if resource is Resource.TOPIC_POLICY)


def _ordered(retention: Change, quota: Change, inherited: Inherited) -> tuple[list[Change], list[Change]]:
    """What is set in this order, and what is set after all other changes."""
    shared = inherited(retention) if retention.resource is Resource.TOPIC_POLICY else None
    now, final = (value or shared for value in (retention.before, retention.after))
    quotas = _compared(quota)
    if not any(exceeds_retention(value, now) for value in quotas):
        return [quota, retention], []
    if not limits_quota(final) or not _keeps_less(now, final):
        return [retention, quota], []
    middle = longer_retention(now or {}, final or {})
    raised = replace(
        retention,
        action=Action.SET,
        after=middle,
        calls=_calls(retention, retention.before, middle),
        hazard=Hazard.REVERSIBLE,
        reason="raised while the backlog quota is set, which brokers refuse above the retention",
    )
    lowered_again = replace(retention, before=middle, calls=_calls(retention, middle, retention.after))
    return [raised, quota], [lowered_again]


def _pairs(changes: Sequence[Change]) -> dict[Holder, list[Change]]:
    """The retention and the quota of each holder of which both change."""
    by_holder: dict[Holder, list[Change]] = {}
    for change in changes:
        if _policy(change) in _LIMITS:
            by_holder.setdefault(_holder(change), []).append(change)
    return {
        holder: pair
        for holder, pair in by_holder.items()
        if {_policy(change) in _QUOTA for change in pair} == {True, False}
    }


def _by_policy(pair: Sequence[Change]) -> tuple[Change, Change]:
    retention, quota = sorted(pair, key=lambda change: _policy(change) in _QUOTA)
    return retention, quota


def _compared(quota: Change) -> list[Json]:
    """The quotas after the change that the setters compare with a retention."""
    return [
        value
        for kind, value in (quota.after or {}).items()
        if quota.resource is Resource.TOPIC_POLICY or kind in _COMPARED_OF_NAMESPACE
    ]


def _policy(change: Change) -> str:
    match change.resource:
        case Resource.POLICY:
            return change.field
        case Resource.TOPIC_POLICY:
            return TopicPolicyField.parse(change.field).policy
    return ""


def _holder(change: Change) -> Holder:
    topic = change.resource is Resource.TOPIC_POLICY
    return change.resource, change.name, TopicPolicyField.parse(change.field).scope if topic else ""


def _calls(change: Change, before: Json, after: Json) -> tuple[Call, ...]:
    if change.resource is Resource.POLICY:
        return policy_calls(BY_FIELD[change.field], NamespaceName.parse(change.name), before, after)
    path = TopicPolicyField.parse(change.field)
    return topic_policy_calls(TOPIC_BY_FIELD[path.policy], TopicName.parse(change.name), path.scope, before, after)
