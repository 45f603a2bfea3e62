"""The change that removes a difference in a topic or a subscription, or the reason to leave it alone (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.admin.call import PARTITIONED_WITH_PROPERTIES, Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, TopicName, is_addressable, own_topic_properties
from pulsar_fleet.cluster.policies.model import TopicPolicyField
from pulsar_fleet.cluster.policies.namespace_catalogue import is_supported
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Form, Scope, TopicPolicy, topic_policy_calls
from pulsar_fleet.planning.diff_entry import Difference, Side, same
from pulsar_fleet.planning.plan import Action, Change, Hazard, LeftAlone


def reason_not_to_create(name: str, value: JsonObject) -> str:
    """Why a topic of the source is not created on the target; empty when it is."""
    if SHADOW_SOURCE in value["properties"]:
        return "a shadow topic: it shares the ledgers of a topic of its own cluster, so it is never copied"
    if TopicName.parse(name).has_refused_name(value["partitions"]):
        return "its name has -partition- in it like that of a partition, and brokers refuse to create such a topic"
    return ""


def topic_change(difference: Difference, *, exact: bool = False) -> Change | LeftAlone:
    """Create the topic on the target only, add properties, or add partitions; `exact` also removes properties."""
    if not difference.field:
        reason = reason_not_to_create(difference.name, difference.source)
        return LeftAlone.of(difference, reason) if reason else _creation(difference)
    if difference.field == "partitions":
        return _growth(difference)
    return _properties(difference, exact)


def schema_change(difference: Difference) -> Change | LeftAlone:
    """Register the versions that the target lacks, in order; a different history is left alone."""
    existing: list[JsonObject] = difference.target or []
    if not same(difference.source[: len(existing)], existing):
        return LeftAlone.of(difference, "the target has another schema history, which cannot be rewritten")
    path = f"{TopicName.parse(difference.name).schema_path}/schema"
    missing = difference.source[len(existing) :]
    calls = tuple(with_body("POST", path, version) for version in missing)
    reason = f"{len(missing)} of {len(difference.source)} versions are missing"
    return Change.of(difference, calls, difference.source, reason, hazard=Hazard.NONE)


def topic_policy_change(difference: Difference, version: str) -> Change | LeftAlone:
    """Set or unset one policy of a topic in one scope."""
    field = TopicPolicyField.parse(difference.field)
    policy = TOPIC_BY_FIELD.get(field.policy)
    reason = _reason_to_leave(policy, difference, field.scope, version)
    if policy is None or reason:
        return LeftAlone.of(difference, reason)
    after = False if difference.source is None and not policy.can_unset else difference.source
    calls = topic_policy_calls(policy, TopicName.parse(difference.name), field.scope, difference.target, after)
    if difference.source is None:
        return Change.of(difference, calls, after, "not set on the source", Action.UNSET)
    return Change.of(difference, calls, after, "differs from the source")


def _creation(difference: Difference) -> Change:
    topic, value = TopicName.parse(difference.name), difference.source
    call = with_body("PUT", f"/{topic.path}", value["properties"])
    if value["partitions"]:
        # Without createLocalTopicOnly the broker creates the topic on every cluster of its namespace.
        call = Call(
            "PUT",
            f"/{topic.path}/partitions",
            (("createLocalTopicOnly", "true"),),
            value,
            has_body=True,
            content_type=PARTITIONED_WITH_PROPERTIES,
        )
    return Change.of(difference, (call,), value, "the target lacks this topic")


def _growth(difference: Difference) -> Change | LeftAlone:
    if 0 in (difference.source, difference.target):
        return LeftAlone.of(difference, "partitioned on one side only")
    if difference.source < difference.target:
        counts = f"{difference.target} partitions, the source {difference.source}"
        return LeftAlone.of(difference, f"the target has {counts}: none can be removed")
    path = f"/{TopicName.parse(difference.name).path}/partitions"
    call = with_body("POST", path, difference.source, updateLocalTopicOnly="true")
    reason = "the source has more partitions"
    return Change.of(difference, (call,), difference.source, reason, Action.GROW, Hazard.IRREVERSIBLE)


def _properties(difference: Difference, exact: bool) -> Change | LeftAlone:
    before, after = difference.target or {}, difference.source or {}
    if not exact:
        after = {**before, **after}
    if same(after, before) or SHADOW_SOURCE in {**before, **after}:
        return LeftAlone.of(difference, "the target has more properties, and nothing is removed")
    calls = tuple(property_calls(TopicName.parse(difference.name), before, after))
    return Change.of(difference, calls, after, "properties are added or differ")


def property_calls(topic: TopicName, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Call]:
    """The broker merges properties on PUT, so each key that goes is deleted by its own call."""
    path, before, after = f"/{topic.path}/properties", own_topic_properties(before), own_topic_properties(after)
    for key in sorted(set(before) - set(after)):
        yield bare("DELETE", path, key=key)
    if any(before.get(key) != value for key, value in after.items()):
        yield with_body("PUT", path, dict(after))


def _reason_to_leave(policy: TopicPolicy | None, difference: Difference, scope: Scope, version: str) -> str:
    if policy is None:
        return "this release does not know the field"
    if not is_supported(policy.since, version):
        return f"needs Pulsar {policy.since} on the target, which runs {version}"
    if scope is Scope.GLOBAL and policy.local_only:
        return "brokers store it for the local cluster only"
    if policy.form is Form.CLUSTER_LIST and (scope is Scope.GLOBAL or difference.source is None):
        return "a topic's cluster list can delete the topic on clusters that are not in it"
    if difference.source is None and difference.target is False and not policy.can_unset:
        return "it cannot be unset, and the target already has false, which is equivalent"
    return ""


def setting_rank(change: Change) -> tuple[str, int]:
    """Sort key of topic policies: by topic, then in the order of the catalogue."""
    return change.name, list(TOPIC_BY_FIELD).index(TopicPolicyField.parse(change.field).policy)


def versions_after(change: Change) -> int:
    """The number of schema versions that the topic has after the change."""
    versions: Json = change.after
    return len(versions)


_STORES_FLAG_SINCE = "4.2"
"""Measured: 3.0.7 and 4.0.7 store the flag of partitions' new subscriptions only when the topic is unloaded."""
_EARLIEST = "earliest"
"""Before the first stored message: every message is delivered."""


def subscription_change(difference: Difference, version: str) -> Change | LeftAlone:
    """Create the subscription at the earliest position, or set the source's properties and replicated flag."""
    if not is_addressable(difference.field):
        return LeftAlone.of(difference, "its name cannot be addressed over HTTP")
    if difference.side is Side.MISSING:
        return _subscription_creation(difference, version)
    after = {**difference.source, "properties": {**difference.target["properties"], **difference.source["properties"]}}
    if same(after, difference.target):
        return LeftAlone.of(difference, "the target has more properties, and nothing is removed")
    calls = setting_calls(TopicName.parse(difference.name), difference.field, difference.target, after)
    return Change.of(difference, calls, after, "its properties or its replicated flag differ")


def setting_calls(topic: TopicName, name: str, before: JsonObject, after: JsonObject) -> tuple[Call, ...]:
    """Change an existing subscription from one comparable value to another."""
    path = topic.subscription_path(name)
    calls: tuple[Call, ...] = ()
    if not same(before["properties"], after["properties"]):
        calls += (with_body("PUT", f"{path}/properties", after["properties"]),)
    if before["replicated"] != after["replicated"]:
        # The broker stores the flag when the topic is next unloaded; no list shows it before.
        calls += (
            with_body("POST", f"{path}/replicatedSubscriptionStatus", after["replicated"]),
            bare("PUT", f"/{topic.path}/unload"),
        )
    return calls


def _subscription_creation(difference: Difference, version: str) -> Change:
    topic = TopicName.parse(difference.name)
    path = topic.subscription_path(difference.field)
    replicated = bool(difference.source["replicated"])
    body = _body(difference.source["properties"])
    calls: tuple[Call, ...] = (with_body("PUT", path, body, replicated=str(replicated).lower()),)
    if replicated:
        # The flag of the creating call is lost when the topic is next unloaded; the flag of this call is stored.
        calls += (with_body("POST", f"{path}/replicatedSubscriptionStatus", True),)
        if not is_supported(_STORES_FLAG_SINCE, version):
            calls += (bare("PUT", f"/{topic.path}/unload"),)
    after = {"position": _EARLIEST, **difference.source}
    return Change.of(difference, calls, after, "the target lacks this subscription")


def _body(properties: JsonObject) -> Json:
    """`earliest`; with properties the same position as a document, since only that form accepts them."""
    if not properties:
        return _EARLIEST
    return {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": properties}
