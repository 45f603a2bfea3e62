"""Which planned calls can lose data: the tables of hazards, the guards in front of calls, the values in effect (pure).

The catalogues define once when a policy discards messages (`loses_data`); these tables add the class and the reason.
Every row was observed on real brokers, except those of retention and expiry, which follow the broker's documented
checks.

A topic's retention can be shorter than the namespace's, and an unset one falls back to the broker's default: only the
effective values before and after a change show what it does to messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import revoked_rights
from pulsar_fleet.cluster.policies.effective import effective_of_namespace, effective_value
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS, TopicPolicyField
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Change, Hazard, worst
from pulsar_fleet.snapshot.model import BrokerState, Snapshot
from pulsar_fleet.snapshot.resources import lists_of_topics


@dataclass(frozen=True, slots=True)
class Risk:
    """A hazard that a rule assigns, and its consequence, as the end of a sentence."""

    hazard: Hazard
    reason: str


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A change of a value; `field` is the name in the namespace catalogue, also for a topic policy."""

    resource: Resource
    field: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class CallRule:
    """A hazard of a call, whatever the plan says about it.

    :param never: no permission allows the call.
    """

    risk: Risk
    matches: Callable[[Call, str], bool]
    never: bool = False


@dataclass(frozen=True, slots=True)
class ValueRule:
    """A hazard of a change of a value."""

    risk: Risk
    matches: Callable[[ValueChange], bool]


# Names have their own places in a path, so that a resource may have the name of a call.
_TOPIC_REPLICATION = re.compile(r"^/(?:non-)?persistent/[^/]+/[^/]+/[^/]+/replication$")
_NAMESPACE_LIST = re.compile(r"^/namespaces/[^/]+/[^/]+/(replication|allowedClusters)$")
_NAMESPACE = re.compile(r"^/namespaces/[^/]+/[^/]+$")
_TENANT = re.compile(r"^/tenants/[^/]+$")
_TOPIC_PATH = r"^/(?:non-)?persistent/[^/]+/[^/]+/[^/]+"
_SUBSCRIPTION_PATH = rf"{_TOPIC_PATH}/(?:subscription/[^/]+|all_subscription)"
_NAMESPACE_PATH = r"^/namespaces/[^/]+/[^/]+"
# DELETE of these paths deletes the resource; deeper paths below a namespace or a topic are single settings.
_DELETES = re.compile(
    r"^/(tenants/[^/]+|namespaces/[^/]+(/[^/]+){1,2}|(non-)?persistent/[^/]+/[^/]+/[^/]+"
    r"(/partitions|/truncate|/subscription/[^/]+)?|schemas/.+)$"
)
_NAMESPACE_SETTING = re.compile(r"^/namespaces/[^/]+/[^/]+/(?!0x)[^/]+$")
_EMPTIES = re.compile(
    rf"{_SUBSCRIPTION_PATH}/(skip_all|skip/\d+)$|{_TOPIC_PATH}/(terminate(/partitions)?|trim)$"
    rf"|{_NAMESPACE_PATH}(/0x[^/]+)?/(clearBacklog(/[^/]+)?|unsubscribe/[^/]+|migration)$"
)
_MOVES_CURSOR = re.compile(rf"{_SUBSCRIPTION_PATH}/(resetcursor(/\d+)?|expireMessages(/\d+)?)$")


def _deletes(call: Call, _own: str) -> bool:
    matched = _DELETES.match(call.path) and not _NAMESPACE_SETTING.match(call.path)
    return call.method == "DELETE" and bool(matched)


def _created_with(field: str) -> Callable[[Call, str], bool]:
    def matches(call: Call, _own: str) -> bool:
        creates = call.method == "PUT" and bool(_NAMESPACE.match(call.path))
        return creates and isinstance(call.body, dict) and bool(call.body.get(field))

    return matches


def _path(method: str, pattern: str, **params: str) -> Callable[[Call, str], bool]:
    compiled = re.compile(pattern)

    def matches(call: Call, _own: str) -> bool:
        query = dict(call.params)
        matching = all(query.get(key) == value for key, value in params.items())
        return call.method == method and matching and bool(compiled.search(call.path))

    return matches


CALL_RULES: tuple[CallRule, ...] = (
    CallRule(
        Risk(Hazard.DESTRUCTIVE, "a cluster list without the cluster's own name deletes all topics under it"),
        lambda call, own: any(own not in names for _, names in cluster_lists(call)),
        never=True,
    ),
    CallRule(
        Risk(Hazard.DESTRUCTIVE, "a topic's global list deletes the topic on every cluster that is not in it"),
        lambda call, _own: is_global_topic_list(call),
        never=True,
    ),
    CallRule(
        Risk(Hazard.DESTRUCTIVE, "a namespace that is created as deleted refuses every topic"),
        _created_with("deleted"),
        never=True,
    ),
    CallRule(
        Risk(Hazard.DESTRUCTIVE, "a namespace that is created as migrated terminates its topics when they are loaded"),
        _created_with("migrated"),
        never=True,
    ),
    CallRule(Risk(Hazard.DESTRUCTIVE, "deletes it with everything in it"), _deletes),
    CallRule(
        Risk(Hazard.DESTRUCTIVE, "the broker deletes a cluster even while namespaces replicate to it"),
        _path("DELETE", r"^/clusters/[^/]+$"),
    ),
    CallRule(
        Risk(Hazard.DESTRUCTIVE, "discards messages or subscriptions, or terminates topics"),
        lambda call, _own: bool(_EMPTIES.search(call.path)),
    ),
    CallRule(
        Risk(Hazard.DESTRUCTIVE, "terminates every topic of the cluster"),
        _path("POST", r"^/clusters/[^/]+/migrate$", migrated="true"),
    ),
    CallRule(
        Risk(Hazard.IRREVERSIBLE, "moves a cursor, and its previous position is lost"),
        lambda call, _own: bool(_MOVES_CURSOR.search(call.path)),
    ),
    CallRule(
        Risk(Hazard.IRREVERSIBLE, "removes all policies of the topic, also those that protect its messages"),
        _path("DELETE", rf"{_TOPIC_PATH}/policies$"),
    ),
    CallRule(
        Risk(Hazard.IRREVERSIBLE, "partitions cannot be removed again, and keys move to other partitions"),
        _path("POST", rf"{_TOPIC_PATH}/partitions$"),
    ),
    CallRule(
        Risk(Hazard.REVERSIBLE, "clients of the topic reconnect"),
        _path("PUT", rf"{_TOPIC_PATH}/unload$"),
    ),
)

WAY_BACK = "what is published there is sent back to {}, which only sends to it now; what was sent cannot be taken back"
"""Of a list that completes a replication in one direction: that may be intended, or set up on one side only."""
_NEVER_REPLICATED = "messages not yet replicated to a cluster that leaves the list never arrive there"
DISCARDS = {
    "replication_clusters": _NEVER_REPLICATED,
    "allowed_clusters": _NEVER_REPLICATED,
    "retention_policies": "retention is shorter: the broker deletes acknowledged messages beyond it",
    "backlog_quota_map": "the broker discards the oldest unacknowledged messages beyond the quota",
    "message_ttl_in_seconds": "messages expire sooner: the broker acknowledges them although no consumer read them",
    "subscription_expiration_time_minutes": "idle subscriptions are deleted sooner, with their backlog",
    "inactive_topic_policies": "the broker deletes inactive topics, with their messages",
}
_OFFLOAD_ADDRESS = re.compile(r"(Driver|Bucket|Region|ServiceEndpoint|ProfilePath|fileSystemURI)$")


def _discards(field: str) -> Callable[[ValueChange], bool]:
    loses_data = BY_FIELD[field].loses_data

    def matches(value: ValueChange) -> bool:
        return value.field == field and loses_data is not None and loses_data(value.before, value.after)

    return matches


def _leaves_offloaded(value: ValueChange) -> bool:
    if value.field != "offload_policies":
        return False
    before, after = _address(value.before), _address(value.after)
    return bool(before) and before != after


def _address(offload: Json) -> dict[str, Json]:
    return {key: value for key, value in (offload or {}).items() if _OFFLOAD_ADDRESS.search(key)}


def _filters(value: ValueChange) -> bool:
    return value.field == "entryFilters" and bool(value.after)


def _is_list(value: ValueChange) -> bool:
    policy = BY_FIELD.get(value.field)
    return policy is not None and policy.kind is Kind.CLUSTER_LIST


def _adds_peer(value: ValueChange) -> bool:
    lists = value.field == "replication_clusters" and _is_list(value)
    return lists and bool(set(value.after or ()) - set(value.before or ())) and len(value.after) > 1


def _tightens(value: ValueChange) -> bool:
    """Whether a limit is new or lower; 0, negative and unset mean no limit."""
    if isinstance(value.after, dict) and (value.resource is Resource.RESOURCE_GROUP or value.field.endswith("Rate")):
        return any(_lower((value.before or {}).get(key), limit) for key, limit in value.after.items())
    return value.field.startswith("max") and _lower(value.before, value.after)


def _lower(before: Json, after: Json) -> bool:
    numbers = isinstance(after, int | float) and not isinstance(after, bool) and after > 0
    return numbers and (not isinstance(before, int | float) or before <= 0 or after < before)


def _revokes(value: ValueChange) -> bool:
    shared = value.resource is Resource.TENANT and not value.field
    return (shared or value.field == "auth_policies") and bool(revoked_rights(value.before, value.after))


def _demands(value: ValueChange) -> bool:
    if value.field in ("encryption_required", "schema_validation_enforced"):
        return bool(value.after)
    if value.field == "is_allow_auto_update_schema":
        return value.after is False
    if value.field == "subscription_types_enabled":
        return bool(value.after) and not set(value.after) >= set(value.before or ("every type",))
    return value.field == "subscription_auth_mode" and value.after == "Prefix"


VALUE_RULES: tuple[ValueRule, ...] = (
    *(ValueRule(Risk(Hazard.IRREVERSIBLE, reason), _discards(field)) for field, reason in DISCARDS.items()),
    ValueRule(Risk(Hazard.IRREVERSIBLE, "messages that a filter rejects are acknowledged"), _filters),
    ValueRule(
        Risk(Hazard.IRREVERSIBLE, "messages that were offloaded to the old address can no longer be read"),
        _leaves_offloaded,
    ),
    ValueRule(Risk(Hazard.REVERSIBLE, "new messages are replicated to the clusters that join the list"), _adds_peer),
    ValueRule(Risk(Hazard.REVERSIBLE, "clients above the lower limit are refused or throttled"), _tightens),
    ValueRule(Risk(Hazard.DESTRUCTIVE, "rights are revoked: who uses them is refused"), _revokes),
    ValueRule(Risk(Hazard.REVERSIBLE, "clients that do not comply are refused"), _demands),
)


def with_risks(change: Change, own: str, values: Iterable[ValueChange]) -> Change:
    """The change with the highest hazard of its calls to the cluster `own` and of `values`; the reason names it."""
    risks = risks_of_calls(change.calls, own) + risks_of_values(values)
    hazard = worst(change.hazard, *(risk.hazard for risk in risks))
    reasons = dict.fromkeys(risk.reason for risk in risks if risk.hazard is hazard)
    return replace(change, hazard=hazard, reason="; ".join([change.reason, *reasons]))


def risks_of_calls(calls: Iterable[Call], own: str) -> tuple[Risk, ...]:
    """What calls to the cluster `own` can do, whatever the plan says about them; the highest hazard first."""
    return _worst_first(rule.risk for call in calls for rule in CALL_RULES if rule.matches(call, own))


def risks_of_values(values: Iterable[ValueChange]) -> tuple[Risk, ...]:
    """What a change of a value can do; several values are all that may be effective."""
    return _worst_first(rule.risk for value in values for rule in VALUE_RULES if rule.matches(value))


class OtherDirection:
    """Finds the changes that make the target replicate to a sender that only sends to it now.

    :param sender: in its own terms, with the namespaces of the changes.
    """

    def __init__(self, sender: Snapshot, target: Snapshot) -> None:
        self._sender, self._target = _Lists(sender), _Lists(target)

    def with_risk(self, change: Change) -> Change:
        """The change as an irreversible one where it does; what a plan creates on the target gets its whole list."""
        sender, target = self._sender, self._target
        if not _is_list_of_clusters(change) or not target.has(change.name):
            return change
        asked = sender.cluster in (change.after or ()) and sender.cluster not in target.of(change.name)
        if not asked or target.cluster not in sender.of(change.name):
            return change
        reason = f"{change.reason}; {WAY_BACK.format(sender.cluster)}"
        return replace(change, hazard=worst(change.hazard, Hazard.IRREVERSIBLE), reason=reason)


class _Lists:
    """The lists of clusters in effect on a cluster, of namespaces and topics."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cluster = snapshot.cluster
        self._topics = {topic.name for topic in snapshot.topics}
        self._namespaces = {
            state.name: frozenset(state.policies.get("replication_clusters") or ()) for state in snapshot.namespaces
        }
        self._own = lists_of_topics(snapshot.topic_policies)

    def has(self, name: str) -> bool:
        return name in self._namespaces or name in self._topics

    def of(self, name: str) -> frozenset[str]:
        if "://" not in name:
            return self._namespaces.get(name, frozenset())
        topic = TopicName.parse(name)
        return self._own.get(topic) or self._namespaces.get(str(topic.namespace), frozenset())


def _is_list_of_clusters(change: Change) -> bool:
    if change.resource is Resource.TOPIC_POLICY:
        return TopicPolicyField.parse(change.field).policy == TOPIC_CLUSTERS
    return change.resource is Resource.POLICY and change.field == "replication_clusters"


def guard_call(call: Call, own: str) -> None:
    """Refuse a call that no permission allows. Every planned call passes here immediately before it is sent."""
    guard_cluster_lists(call, own)
    for rule in CALL_RULES:
        if rule.never and rule.matches(call, own):
            raise PreconditionFailed(f"{call.text()} on {own!r}: {rule.risk.reason}. Nothing was sent.", cluster=own)


def guard_cluster_lists(call: Call, own: str) -> None:
    """Refuse a cluster list without the name of the cluster that stores it.

    The broker answers 200 to such a list and deletes all topics of the namespace within a second (observed). Every
    call passes this function immediately before it is sent, with the cluster name that the brokers report.

    :raises PreconditionFailed: the list lacks `own`, or it is a topic's global cluster list.
    """
    for key, names in cluster_lists(call):
        if own not in names:
            raise PreconditionFailed(
                f"{call.text()} would set {key} to {sorted(names)!r} on {own!r}, without {own!r} itself: "
                f"{own} would delete all topics under it. Nothing was sent; add {own!r} to the list.",
                cluster=own,
            )
    if is_global_topic_list(call):
        raise PreconditionFailed(
            f"{call.text()}: a topic's global cluster list deletes the topic on every cluster that is not in it. "
            "Nothing was sent; set the list of the namespace, or the local list of the topic, instead.",
            cluster=own,
        )


def cluster_lists(call: Call) -> list[tuple[str, list[str]]]:
    """The cluster lists that a call stores, by field; an absent or empty list counts where it would take effect."""
    if call.method not in ("PUT", "POST"):
        return []
    body = call.body
    if _NAMESPACE_LIST.match(call.path):
        return [(call.path.rpartition("/")[2], list(body or ()))]
    if _TOPIC_REPLICATION.match(call.path):
        return [("replication", list(body or ()))]
    if _TENANT.match(call.path):
        return [("allowedClusters", list((body or {}).get("allowedClusters") or ()))]
    if _NAMESPACE.match(call.path) and call.method == "PUT" and body:
        lists = [("replication_clusters", list(body.get("replication_clusters") or ()))]
        if body.get("allowed_clusters"):
            lists.append(("allowed_clusters", list(body["allowed_clusters"])))
        return lists
    return []


def is_global_topic_list(call: Call) -> bool:
    """Whether the call stores a topic's cluster list for all clusters."""
    return bool(_TOPIC_REPLICATION.match(call.path)) and dict(call.params).get("isGlobal") == "true"


def _worst_first(risks: Iterable[Risk]) -> tuple[Risk, ...]:
    return tuple(sorted(dict.fromkeys(risks), key=lambda risk: -list(Hazard).index(risk.hazard)))


Documents = Mapping[str, JsonObject]
Configuration = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveValues:
    """Comparable documents of the target, before and after the plan.

    :param brokers: every broker's configuration, with Pulsar's defaults for settings that it does not report.
    :param namespaces: before the plan, by name.
    :param topics: before the plan, by topic and scope.
    """

    brokers: tuple[Configuration, ...]
    namespaces: Documents
    topics: Mapping[tuple[str, str], JsonObject]
    namespaces_after: Documents = field(default_factory=dict)
    topics_after: Mapping[tuple[str, str], JsonObject] = field(default_factory=dict)

    def changes(self, change: Change) -> Iterator[ValueChange]:
        """Every pair of values that may be effective before and after: a part of the plan may not be applied."""
        if change.resource is Resource.POLICY and change.field in BY_FIELD:
            policy = BY_FIELD[change.field]
            for broker in self.brokers:
                sides = [effective_of_namespace(policy, value, broker) for value in (change.before, change.after)]
                yield ValueChange(change.resource, change.field, *sides)
        elif change.resource is Resource.TOPIC_POLICY and TopicPolicyField.parse(change.field).policy in TOPIC_BY_FIELD:
            yield from self._of_topic(change)
        else:
            yield ValueChange(change.resource, change.field, change.before, change.after)

    def _of_topic(self, change: Change) -> Iterator[ValueChange]:
        path = TopicPolicyField.parse(change.field)
        policy = TOPIC_BY_FIELD[path.policy]
        namespace = str(change.namespace)
        global_documents: list[JsonObject] = [{}, {}]
        if path.scope is not Scope.GLOBAL:
            global_documents = [topics.get((change.name, "global"), {}) for topics in (self.topics, self.topics_after)]
        documents = [namespaces.get(namespace, {}) for namespaces in (self.namespaces, self.namespaces_after)]

        def effective(value: Json, shared: JsonObject, document: JsonObject, broker: Configuration) -> Json:
            local = {path.policy: value}
            return effective_value(policy, local=local, shared=shared, namespace=document, configuration=broker)

        for broker in self.brokers:
            before = effective(change.before, global_documents[0], documents[0], broker)
            for shared in global_documents:
                for document in documents:
                    after = effective(change.after, shared, document, broker)
                    yield ValueChange(change.resource, policy.namespace_field or path.policy, before, after)


def configurations(brokers: Iterable[BrokerState]) -> tuple[Configuration, ...]:
    """What each broker does where no policy is set; Pulsar's defaults replace settings that it does not report."""
    return tuple({**_PULSAR, **broker.configuration} for broker in brokers) or (_PULSAR,)


_PULSAR: Configuration = {
    "defaultRetentionTimeInMinutes": "0",
    "defaultRetentionSizeInMB": "0",
    "ttlDurationDefaultInSeconds": "0",
    "subscriptionExpirationTimeMinutes": "0",
    "brokerDeleteInactiveTopicsEnabled": "true",
    "backlogQuotaDefaultLimitBytes": "-1",
    "backlogQuotaDefaultLimitSecond": "-1",
    "backlogQuotaDefaultRetentionPolicy": "producer_request_hold",
}
_KEEPING: Configuration = {
    **_PULSAR,
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
_DISCARDING: Configuration = {
    **_PULSAR,
    "ttlDurationDefaultInSeconds": "1",
    "subscriptionExpirationTimeMinutes": "1",
    "backlogQuotaDefaultLimitBytes": "1",
    "backlogQuotaDefaultLimitSecond": "1",
    "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
}
UNKNOWN_SETTINGS = EffectiveValues(brokers=(_KEEPING, _DISCARDING), namespaces={}, topics={})
"""For unknown effective values: one broker that keeps every message and one that keeps none."""
