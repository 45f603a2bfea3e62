"""The tables of hazards: each row has a condition, the class of hazard and the reason (pure).

The catalogues define once when a policy discards messages (`loses_data`); these tables add the class and the reason.
Every row was observed on real brokers, except those of retention and expiry, which follow the broker's documented
checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.grants import revoked_rights
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazard import NAMESPACE_PATH, Hazard, Risk, cluster_lists, is_global_topic_list


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
        creates = call.method == "PUT" and bool(NAMESPACE_PATH.match(call.path))
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
