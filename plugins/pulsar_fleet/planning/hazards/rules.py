"""The table of hazards: what is dangerous, how much, and why, in one row each (pure).

What makes a policy discard messages is said once, in the catalogues (`loses`); here stand the class and the reason.
Every row was seen on real brokers, except those of retention and expiry, which follow the broker's documented checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, Kind
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards.model import Hazard, Mark, cluster_lists, is_global_topic_list


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that is changed: `field` is the name in the namespace's catalogue, also for a topic's policy."""

    resource: Resource
    field: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class CallRule:
    """A hazard of a call by itself.

    :param never: no permission makes it right.
    :param names_own: it depends on the name of the cluster that is called.
    """

    mark: Mark
    matches: Callable[[Call, str], bool]
    never: bool = False
    names_own: bool = False


@dataclass(frozen=True, slots=True)
class ValueRule:
    """A hazard of going from one value to another."""

    mark: Mark
    matches: Callable[[Setting], bool]


_TOPIC_PATH = r"^/(?:non-)?persistent/[^/]+/[^/]+/[^/]+"
_NAMESPACE = re.compile(r"^/namespaces/[^/]+/[^/]+$")
# Deleting these paths deletes what they name; deeper paths below a namespace or a topic are single settings.
_DELETES = re.compile(
    r"^/(tenants/[^/]+|namespaces/[^/]+(/[^/]+){1,2}|(non-)?persistent/[^/]+/[^/]+/[^/]+"
    r"(/partitions|/truncate|/subscription/[^/]+)?|schemas/.+)$"
)
_NAMESPACE_SETTING = re.compile(r"^/namespaces/[^/]+/[^/]+/(?!0x)[^/]+$")
_EMPTIES = re.compile(r"/(skip_all|skip/\d+|clearBacklog(/.+)?|unsubscribe/.+|terminate(/partitions)?|trim|migration)$")
_MOVES_CURSOR = re.compile(r"/(resetcursor(/\d+)?|expireMessages(/\d+)?)$")


def _deletes(call: Call, _own: str) -> bool:
    matched = _DELETES.match(call.path) and not _NAMESPACE_SETTING.match(call.path)
    return call.method == "DELETE" and bool(matched)


def _created_with(field: str) -> Callable[[Call, str], bool]:
    def matches(call: Call, _own: str) -> bool:
        creates = call.method == "PUT" and bool(_NAMESPACE.match(call.path))
        return creates and isinstance(call.body, dict) and bool(call.body.get(field))

    return matches


def _path(method: str, pattern: str, **params: str) -> Callable[[Call, str], bool]:
    wanted = re.compile(pattern)

    def matches(call: Call, _own: str) -> bool:
        given = dict(call.params)
        right = all(given.get(key) == value for key, value in params.items())
        return call.method == method and right and bool(wanted.search(call.path))

    return matches


CALL_RULES: tuple[CallRule, ...] = (
    CallRule(
        Mark(Hazard.DESTRUCTIVE, "a cluster list without the cluster's own name deletes all topics under it"),
        lambda call, own: any(own not in names for _, names in cluster_lists(call)),
        never=True,
        names_own=True,
    ),
    CallRule(
        Mark(Hazard.DESTRUCTIVE, "a global list of a topic deletes it on every cluster that is left out"),
        lambda call, _own: is_global_topic_list(call),
        never=True,
    ),
    CallRule(
        Mark(Hazard.DESTRUCTIVE, "a namespace that is born deleted refuses every topic"),
        _created_with("deleted"),
        never=True,
    ),
    CallRule(
        Mark(Hazard.DESTRUCTIVE, "a namespace that is born migrated ends its topics when they are loaded"),
        _created_with("migrated"),
        never=True,
    ),
    CallRule(Mark(Hazard.DESTRUCTIVE, "deletes it with everything that lies in it"), _deletes),
    CallRule(
        Mark(Hazard.DESTRUCTIVE, "the broker forgets a cluster even while namespaces replicate to it"),
        _path("DELETE", r"^/clusters/[^/]+$"),
    ),
    CallRule(
        Mark(Hazard.DESTRUCTIVE, "throws away messages or subscriptions, or ends topics"),
        lambda call, _own: bool(_EMPTIES.search(call.path)),
    ),
    CallRule(
        Mark(Hazard.DESTRUCTIVE, "ends every topic of the cluster"),
        _path("POST", r"^/clusters/[^/]+/migrate$", migrated="true"),
    ),
    CallRule(
        Mark(Hazard.IRREVERSIBLE, "moves a subscription, and where it stood is forgotten"),
        lambda call, _own: bool(_MOVES_CURSOR.search(call.path)),
    ),
    CallRule(
        Mark(Hazard.IRREVERSIBLE, "removes all policies of the topic, what protects its messages included"),
        _path("DELETE", rf"{_TOPIC_PATH}/policies$"),
    ),
    CallRule(
        Mark(Hazard.IRREVERSIBLE, "partitions cannot be taken away again, and keys move to other partitions"),
        _path("POST", r"/partitions$"),
    ),
    CallRule(
        Mark(Hazard.REVERSIBLE, "clients of the topic reconnect"),
        _path("PUT", rf"{_TOPIC_PATH}/unload$"),
    ),
)

_NEVER_ARRIVES = "what has not been replicated to a cluster that leaves the list never arrives there"
DISCARDS = {
    "replication_clusters": _NEVER_ARRIVES,
    "allowed_clusters": _NEVER_ARRIVES,
    "retention_policies": "less is kept: the broker deletes acknowledged messages beyond it",
    "backlog_quota_map": "the broker discards the oldest messages that are not acknowledged beyond the quota",
    "message_ttl_in_seconds": "messages expire sooner: the broker acknowledges them unread",
    "subscription_expiration_time_minutes": "idle subscriptions are deleted sooner, with what they have not read",
    "inactive_topic_policies": "the broker deletes topics that nobody uses, with their messages",
}
_ADDRESS_OF_OFFLOAD = re.compile(r"(Driver|Bucket|Region|ServiceEndpoint|ProfilePath|fileSystemURI)$")


def _discards(field: str) -> Callable[[Setting], bool]:
    loses = BY_FIELD[field].loses

    def matches(setting: Setting) -> bool:
        return setting.field == field and loses is not None and loses(setting.before, setting.after)

    return matches


def _leaves_offloaded(setting: Setting) -> bool:
    if setting.field != "offload_policies":
        return False
    before, after = (_address(value) for value in (setting.before, setting.after))
    return bool(before) and before != after


def _address(offload: Json) -> dict[str, Json]:
    return {key: one for key, one in (offload or {}).items() if _ADDRESS_OF_OFFLOAD.search(key)}


def _filters(setting: Setting) -> bool:
    return setting.field == "entryFilters" and bool(setting.after)


def _is_list(setting: Setting) -> bool:
    policy = BY_FIELD.get(setting.field)
    return policy is not None and policy.kind is Kind.CLUSTER_LIST


def _adds_peer(setting: Setting) -> bool:
    lists = setting.field == "replication_clusters" and _is_list(setting)
    return lists and bool(set(setting.after or ()) - set(setting.before or ())) and len(setting.after) > 1


def _tightens(setting: Setting) -> bool:
    """A limit that is new or lower; 0, below 0 and unset are without limit."""
    if isinstance(setting.after, dict) and (
        setting.resource is Resource.RESOURCE_GROUP or setting.field.endswith("Rate")
    ):
        return any(_lower((setting.before or {}).get(key), one) for key, one in setting.after.items())
    return setting.field.startswith("max") and _lower(setting.before, setting.after)


def _lower(before: Json, after: Json) -> bool:
    numbers = isinstance(after, int | float) and not isinstance(after, bool) and after > 0
    return numbers and (not isinstance(before, int | float) or before <= 0 or after < before)


def _demands(setting: Setting) -> bool:
    if setting.field in ("encryption_required", "schema_validation_enforced"):
        return bool(setting.after)
    if setting.field == "is_allow_auto_update_schema":
        return setting.after is False
    if setting.field == "subscription_types_enabled":
        return bool(setting.after) and not set(setting.after) >= set(setting.before or ("every type",))
    return setting.field == "subscription_auth_mode" and setting.after == "Prefix"


VALUE_RULES: tuple[ValueRule, ...] = (
    *(ValueRule(Mark(Hazard.IRREVERSIBLE, reason), _discards(field)) for field, reason in DISCARDS.items()),
    ValueRule(Mark(Hazard.IRREVERSIBLE, "messages that a filter rejects count as acknowledged"), _filters),
    ValueRule(
        Mark(Hazard.IRREVERSIBLE, "messages that were offloaded under the old address can no longer be read"),
        _leaves_offloaded,
    ),
    ValueRule(Mark(Hazard.REVERSIBLE, "new messages are sent to the clusters that join the list"), _adds_peer),
    ValueRule(Mark(Hazard.REVERSIBLE, "clients beyond the lower limit are refused or throttled"), _tightens),
    ValueRule(Mark(Hazard.REVERSIBLE, "clients that do not comply are refused"), _demands),
)
