"""Values of the source that the target's brokers refuse, by the table of their rules (pure).

A source of an older version, or a namespace that was created with the value, can have what a newer broker refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import broker_default
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, is_supported
from pulsar_fleet.cluster.policies.refusals import REFUSALS, Equivalent, Level, Refusal, Setting
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import (
    TOPIC_BY_FIELD,
    TOPIC_CATALOGUE,
    Scope,
    topic_comparable,
    topic_policy_calls,
)
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.preflight.context import Pair, blocker, call_text, number
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import TopicPolicyState

_SHOWN = ("managedLedgerOffloadDriver", "managedLedgerOffloadBucket")
"""The parts of offload policies that are shown; brokers of 3.0 add ten others."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What a copy would set on one namespace, or on one topic in one scope.

    :param ours: field of a namespace policy → value on the source; `theirs` on the target.
    :param inherited: the value in effect on the target without it.
    :param names: field → its name in the document, where it has another one.
    :param creates: the namespace is created with the whole document.
    """

    name: NamespaceName | TopicName
    level: Level
    ours: Mapping[str, Json]
    theirs: Mapping[str, Json]
    inherited: Mapping[str, Json]
    names: Mapping[str, str]
    scope: Scope = Scope.LOCAL
    creates: bool = False

    def refused(self, rule: Refusal) -> Setting | None:
        """The value that the rule refuses; None if the copy does not set it, or it is accepted."""
        fields = [name for name in (rule.field, rule.compared) if name]
        changed = [name for name in fields if name in self.ours and not same(self.ours[name], self.theirs.get(name))]
        if rule.field not in self.ours or not changed or (self.creates and not rule.created):
            return None
        setting = Setting(
            level=self.level,
            value=self.ours[rule.field],
            inherited=self.inherited.get(rule.field),
            effective=_effective(self.inherited, self.ours),
        )
        return setting if rule.refuses(setting) else None


def values_are_accepted(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (400, 412) some values in every run, so nothing is changed before they are replaced."""
    version = pair.target.oldest_version()
    for written in (*_namespaces(pair), *_topics(pair, version)):
        refused: set[str] = set()
        for rule in REFUSALS:
            setting = written.refused(rule) if rule.applies(written.level, version) else None
            # Two policies that are compared are one finding.
            if setting is not None and rule.compared not in refused:
                refused.add(rule.field)
                yield _finding(pair, written, rule, setting)


def admin_roles_are_accepted(pair: Pair) -> Iterator[Finding]:
    """Brokers since 4.0 refuse (412) a tenant with such a role; 3.0.7 stores it (measured)."""
    existing = {tenant.name: set(tenant.admin_roles) for tenant in pair.target.tenants}
    if not is_supported("4.0", pair.target.oldest_version()):
        return
    for tenant in pair.translated.tenants:
        spaced = [role for role in tenant.admin_roles if role != role.strip()]
        if set(spaced) - existing.get(tenant.name, set()):
            yield blocker(
                "admin-role-refused",
                f"tenant {tenant.name}",
                f"adminRoles {spaced!r} on {pair.source.cluster}, none of them on {pair.target.cluster}",
                f"{pair.target.cluster} refuses the tenant: AdminRoles contains whitespace in the beginning or end.",
                f"if no token or certificate of {pair.source.cluster} has such a role, store the tenant there without "
                "it; repeat the other roles and the clusters that it has. Else give its owner a role without the white "
                "space first.",
                values=(spaced, sorted(existing.get(tenant.name, set()))),
            )


def _namespaces(pair: Pair) -> Iterator[_Written]:
    existing = pair.target_namespaces()
    for state in pair.translated.namespaces:
        theirs = existing[state.name].policies if state.name in existing else {}
        yield _Written(
            NamespaceName.parse(state.name),
            Level.NAMESPACE,
            comparable(state.policies, pair.target.cluster),
            comparable(theirs, pair.target.cluster),
            {},
            {},
            creates=state.name not in existing,
        )


def _topics(pair: Pair, version: str) -> Iterator[_Written]:
    namespaces = {state.name: comparable(state.policies, pair.target.cluster) for state in pair.translated.namespaces}
    existing = {(state.topic, state.scope): state.policies for state in pair.target.topic_policies}
    defaults = _broker_defaults(pair)
    for state in pair.translated.topic_policies:
        topic, scope = TopicName.parse(state.topic), Scope(state.scope)
        ours, names = _by_namespace_field(state, scope, version)
        theirs, _ = _by_namespace_field(
            TopicPolicyState(state.topic, state.scope, existing.get((state.topic, state.scope), {}), 0), scope, version
        )
        inherited = _effective(defaults, namespaces.get(str(topic.namespace), {}))
        yield _Written(topic, Level.TOPIC, ours, theirs, inherited, names, scope)


def _broker_defaults(pair: Pair) -> dict[str, Json]:
    """What the target's brokers apply; where they differ, of the first one."""
    configuration = pair.target.brokers[0].configuration if pair.target.brokers else {}
    offload = broker_default(BY_FIELD["offload_policies"], configuration)
    return {"offload_policies": offload, "maxMessageSize": number(pair.target, "maxMessageSize") or None}


def _by_namespace_field(state: TopicPolicyState, scope: Scope, version: str) -> tuple[dict[str, Json], dict[str, str]]:
    """The policies of a topic that are copied, by the field of the namespace policy, and their own names."""
    values = topic_comparable(state.policies)
    copied = [row for row in TOPIC_CATALOGUE if row.is_copied(scope) and is_supported(row.since, version)]
    names = {row.namespace_field or row.field: row.field for row in copied if row.field in values}
    return {name: values[own] for name, own in names.items()}, names


def _effective(below: Mapping[str, Json], above: Mapping[str, Json]) -> dict[str, Json]:
    """The values of two layers; brokers look up each part of quotas and of offload policies separately."""
    merged = {**below, **above}
    for name in ("backlog_quota_map", "offload_policies"):
        parts: JsonObject = {**(below.get(name) or {}), **(above.get(name) or {})}
        merged[name] = parts or None
    return merged


def _finding(pair: Pair, written: _Written, rule: Refusal, setting: Setting) -> Finding:
    source, target = pair.source.cluster, pair.target.cluster
    own = written.names.get(rule.field, rule.field)
    compared = f", with {written.names.get(rule.compared, rule.compared)} in effect" if rule.compared else ""
    other = f" {_text(setting.effective.get(rule.compared))}" if rule.compared else ""
    equivalent = rule.equivalent(setting)
    theirs = written.theirs.get(rule.field)
    return blocker(
        "value-refused",
        str(written.name),
        f"{own} {_text(setting.value)} on {source}{compared}{other}; {'not set' if theirs is None else _text(theirs)} "
        f"on {target}",
        f"{target} refuses it: {rule.says}",
        _remedy(pair, written, own, equivalent),
        call="" if equivalent is None else _call(pair, written, own, setting.value, equivalent),
        values=(setting.value, theirs),
    )


def _remedy(pair: Pair, written: _Written, own: str, equivalent: Equivalent | None) -> str:
    source, target = pair.source.cluster, pair.target.cluster
    again = "take the snapshot again: the plan copies it."
    if equivalent is None:
        return (
            f"{target} accepts no value with the same effect: decide what is to apply on both clusters, set that on "
            f"{source}, and {again}"
        )
    place = source if written.scope is Scope.LOCAL else f"{source} in the global policies of the topic"
    if equivalent.value is None:
        return f"remove {own} on {place}: the effect there is the same without it. Then take the snapshot again."
    value = _text(equivalent.value)
    return f"set {own} to {value} on {place}: the effect there is the same, and {target} accepts it. Then {again}"


def _call(pair: Pair, written: _Written, own: str, before: Json, equivalent: Equivalent) -> str:
    """Empty for global policies: a broker of 3.0 may write all local ones as global ones with them."""
    if written.scope is Scope.GLOBAL:
        return ""
    calls: tuple[Call, ...]
    if isinstance(written.name, TopicName):
        calls = topic_policy_calls(TOPIC_BY_FIELD[own], written.name, written.scope, before, equivalent.value)
    else:
        calls = policy_calls(BY_FIELD[own], written.name, before, equivalent.value)
    return call_text(pair.source.cluster, *calls)


def _text(value: Json) -> str:
    if isinstance(value, dict) and "offloadersDirectory" in value:
        value = {part: value.get(part) for part in _SHOWN}
    return json.dumps(value, sort_keys=True)
